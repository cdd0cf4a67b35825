"""Bare prototype of a switch, as it was first tried: diff, cached vectors, copy of the snapshot, delete + add, swap."""
import time; t0=time.perf_counter()
import sys,os
W=sys.argv[1]
import doltlite_ctypes as dlite; t1=time.perf_counter()
c=dlite.Conn(f'{W}/kb.db'); d=c.execute("select diff_type,to_doc_id,to_content,to_content_hash,from_content_hash from dolt_diff_documents('main','feature')"); t2=time.perf_counter()
import sqlite3,array,json
e=sqlite3.connect(f'{W}/emb.sqlite'); vs=[]
for r in d:
    a=array.array('f'); a.frombytes(e.execute("select v from v where k=?",(bytes.fromhex(r[3]),)).fetchone()[0]); vs.append(a.tolist())
t3=time.perf_counter()
import subprocess; subprocess.run(['cp','-r','--reflink=auto',f'{W}/snapA',f'{W}/tmpB'],check=True); t4=time.perf_counter()
import chromadb_rust_bindings as crb
P=os.path.abspath(f'{W}/tmpB')
cfg=crb.SqliteDBConfig(hash_type=crb.MigrationHash.MD5,migration_mode=crb.MigrationMode.Apply,url=P+"/chroma.sqlite3")
b=crb.Bindings(allow_reset=False,sqlite_db_config=cfg,persist_path=P,hnsw_cache_size=200); t5=time.perf_counter()
cid=open(f'{W}/cid').read(); kw=dict(tenant="default_tenant",database="default_database")
b.delete(collection_id=cid,ids=[r[4][:32] for r in d],where=None,where_document=None,**kw); t6=time.perf_counter()
b.add(ids=[r[3][:32] for r in d],collection_id=cid,embeddings=vs,metadatas=[{"source_id":r[1],"chunk_index":0} for r in d],documents=[r[2] for r in d],uris=None,**kw); t7=time.perf_counter()
n=b.count(cid,*kw.values()); os.replace(P,os.path.abspath(f'{W}/snapB')); t8=time.perf_counter()
print(len(d),n,"imports+dlite %.0f diff %.0f vectors %.0f copy %.0f open %.0f delete %.0f add %.0f swap %.0f total-in-process %.0f ms"%tuple(1000*x for x in (t1-t0,t2-t1,t3-t2,t4-t3,t5-t4,t6-t5,t7-t6,t8-t7,t8-t0)))
