from tests.support import travel
from vmrag_link import proc
import time
home, pair, _pair = travel.home, travel.pair, travel._pair
def test_count(pair, monkeypatch, capsys):
    calls=[]
    real=proc.run
    def run(argv, **k):
        t=time.perf_counter(); d=real(argv, **k); calls.append((round((time.perf_counter()-t)*1000,1), " ".join(a for a in argv[3:] if not a.startswith('-c') and '=' not in a)[:90])); return d
    monkeypatch.setattr(proc,'run',run)
    with capsys.disabled():
        for name,act in (("push",pair.ada.push),("fetch",pair.bob.fetch),("fetch nothing",pair.bob.fetch)):
            if name=="push": pair.ada.record("next")
            calls.clear(); t=time.perf_counter(); act(); print(name, round((time.perf_counter()-t)*1000), len(calls)); 
            for c in calls: print("   ",c)
