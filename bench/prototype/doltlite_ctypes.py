# Bare prototype of binding libdoltlite by ctypes, as it was first tried: the yardstick stays as it was.
"""Minimal ctypes binding to libdoltlite (no stdlib sqlite3)."""
import ctypes as C, os, glob, sysconfig, importlib.util
def libpath():
    e=os.environ.get('DOLTLITE_LIB')
    if e: return e
    sp=importlib.util.find_spec('doltlite')   # does NOT import it
    d=os.path.join(os.path.dirname(sp.origin),'_lib')
    return glob.glob(os.path.join(d,'libdoltlite.*'))[0]
RTLD_DEEPBIND=getattr(os,'RTLD_DEEPBIND',0)
L=C.CDLL(libpath(),mode=os.RTLD_NOW|os.RTLD_LOCAL|RTLD_DEEPBIND)
P=C.c_void_p; S=C.c_char_p; I=C.c_int
def f(n,r,*a):
    x=getattr(L,'sqlite3_'+n); x.restype=r; x.argtypes=a; return x
open_v2=f('open_v2',I,S,C.POINTER(P),I,S); close_v2=f('close_v2',I,P); prepare=f('prepare_v2',I,P,P,I,C.POINTER(P),C.POINTER(P))
step=f('step',I,P); fin=f('finalize',I,P); rst=f('reset',I,P); errmsg=f('errmsg',S,P); xerr=f('extended_errcode',I,P); busy=f('busy_timeout',I,P,I)
b_null=f('bind_null',I,P,I); b_i=f('bind_int64',I,P,I,C.c_longlong); b_d=f('bind_double',I,P,I,C.c_double); b_t=f('bind_text',I,P,I,S,I,P); b_b=f('bind_blob',I,P,I,S,I,P); nparam=f('bind_parameter_count',I,P)
ncol=f('column_count',I,P); ctype=f('column_type',I,P,I); c_i=f('column_int64',C.c_longlong,P,I); c_d=f('column_double',C.c_double,P,I); c_t=f('column_text',P,P,I); c_b=f('column_blob',P,P,I); c_n=f('column_bytes',I,P,I); c_name=f('column_name',S,P,I)
changes=f('changes',I,P); autoc=f('get_autocommit',I,P); interrupt=f('interrupt',None,P)
TRANSIENT=P(-1)
class Error(Exception): pass
class Conn:
    def __init__(s,path,timeout=5000,flags=2|4|0x40|0x10000):
        s.h=P(); rc=open_v2(os.fsencode(path),C.byref(s.h),flags,None)
        if rc: m=errmsg(s.h).decode(); close_v2(s.h); raise Error(f'{rc}: {m}')
        busy(s.h,timeout)
    def _err(s): return Error(f'{xerr(s.h)}: {errmsg(s.h).decode("utf8","replace")}')
    def _prep(s,sql):
        b=sql.encode(); st=P(); buf=C.create_string_buffer(b)
        if prepare(s.h,C.cast(buf,P),len(b),C.byref(st),None): raise s._err()
        return st
    def _bind(s,st,args):
        for i,a in enumerate(args,1):
            if a is None: b_null(st,i)
            elif isinstance(a,int): b_i(st,i,a)
            elif isinstance(a,float): b_d(st,i,a)
            elif isinstance(a,str): x=a.encode(); b_t(st,i,x,len(x),TRANSIENT)
            else: x=bytes(a); b_b(st,i,x,len(x),TRANSIENT)
    def execute(s,sql,args=()):
        st=s._prep(sql)
        try:
            s._bind(st,args); n=ncol(st); s.cols=[c_name(st,i).decode() for i in range(n)]; out=[]
            while True:
                rc=step(st)
                if rc==100:
                    row=[]
                    for i in range(n):
                        t=ctype(st,i)
                        if t==1: row.append(c_i(st,i))
                        elif t==3: p=c_t(st,i); row.append(C.string_at(p,c_n(st,i)).decode())
                        elif t==5: row.append(None)
                        elif t==2: row.append(c_d(st,i))
                        else: p=c_b(st,i); row.append(C.string_at(p,c_n(st,i)) if p else b'')
                    out.append(tuple(row))
                elif rc==101: return out
                else: raise s._err()
        finally: fin(st)
    def executemany(s,sql,rows):
        st=s._prep(sql)
        try:
            for r in rows:
                s._bind(st,r)
                if step(st)!=101: e=s._err(); rst(st); raise e
                rst(st)
        finally: fin(st)
    def close(s):
        if s.h: close_v2(s.h); s.h=None
