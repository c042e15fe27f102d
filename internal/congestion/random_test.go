package congestion_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

var list = flag.Int("worst", 10, "how many of the worst paths to list")

// randomPaths is how many paths one run tries.
const randomPaths = 200

// randomPath is a path by chance, with what shall hold on it.
type randomPath struct {
	simulate.Scenario
	steady time.Duration // the start is over
}

// drawPath draws a path. A path has one of the rarer properties at most.
func drawPath(random *rand.Rand) randomPath {
	between := func(least, most float64) float64 { // all magnitudes alike
		return least * math.Pow(most/least, random.Float64())
	}
	rate := between(9600, 1e10)
	rtt := time.Duration(between(1e-3, 1.5) * float64(time.Second))
	p := simulate.Path{Rate: rate, RTT: rtt, MSS: 1448}
	if rate < 100e3 {
		p.MSS = 536
	}
	p.Queue = int(max(10*float64(p.MSS), between(0.25, 8)*rate/8*rtt.Seconds()))
	session := simulate.Flow{Kind: simulate.Session, Count: streamsFor(rate)}
	r := randomPath{}
	r.Seed, r.Flows = random.Uint64(), []simulate.Flow{session}
	switch random.IntN(8) {
	case 0:
		p.Loss = between(1e-5, 1e-2)
	case 1:
		p.Jitter = time.Duration(between(0.01, 0.2) * float64(rtt))
	case 2:
		p.Stalls = time.Duration(between(0.1, 2) * float64(time.Second))
	case 3:
		p.Police = max(9600, rate*between(0.1, 0.8))
		p.Burst = int(max(20*float64(p.MSS), p.Police/8*0.05))
	case 4:
		p.CoDel = true
	case 5, 6:
		other := simulate.Flow{Kind: simulate.Kind(random.IntN(5)), Count: session.Count}
		if other.Kind == simulate.UDP {
			other.Rate = rate * between(0.1, 0.7)
		}
		r.Flows = append(r.Flows, other)
	}
	r.steady = max(3*time.Second, 30*rtt, packets(60, p)).Round(simulate.Bin)
	after := max(10*time.Second, 40*rtt, packets(200, p)).Round(simulate.Bin)
	r.For = r.steady + after
	if len(r.Flows) > 1 {
		r.Flows[1].From, r.Flows[1].To = r.steady/2, r.steady+after/3
	}
	r.Path = p
	return r
}

// streamsFor is about the number that a session has.
func streamsFor(rate float64) int {
	if rate < 2e6 {
		return 1
	}
	return 4
}

// flaw is how far a path is from what shall be. Above 1 something is wrong.
type flaw struct {
	path int
	size float64
	what string
}

// flaws judges what came of a path: full in the steady state, no collapse, little loss of our own.
func (r randomPath) flaws() flaw {
	result := simulate.Run(r.Scenario)
	available := result.Carries(r.steady, r.For)
	ours := result.Goodput(0, r.steady, r.For)
	all := ours
	for i := range r.Flows[1:] {
		all += result.Goodput(i+1, r.steady, r.For)
	}
	fill, share := all/available, ours/available
	window := max(simulate.Bin, 2*r.Path.RTT, packets(12, r.Path)).Round(simulate.Bin) + simulate.Bin
	collapsed := result.Longest(0, 0.3/float64(len(r.Flows)), r.steady, r.For, window)
	dropped := result.Dropped(0, r.steady, r.For)
	most := max(3*time.Second, 30*r.Path.RTT)
	worst := max(0.9/max(fill, 1e-9), collapsed.Seconds()/most.Seconds(), dropped/0.02)
	return flaw{0, worst, fmt.Sprintf("full %.2f share %.2f collapsed %v dropped %.1f %%: %s",
		fill, share, collapsed, 100*dropped, r)}
}

// packets is the time that n packets take.
func packets(n int, p simulate.Path) time.Duration {
	return time.Duration(float64(n*p.MSS*8) / p.Rate * float64(time.Second))
}

func (r randomPath) String() string {
	p := r.Path
	s := fmt.Sprintf("%.4g Mbit/s × %v, queue %.2f BDP", p.Rate/1e6,
		p.RTT.Round(100*time.Microsecond), float64(p.Queue)*8/p.Rate/p.RTT.Seconds())
	switch {
	case p.Loss > 0:
		s += fmt.Sprintf(", loss %.2g", p.Loss)
	case p.Jitter > 0:
		s += fmt.Sprintf(", jitter %v", p.Jitter.Round(100*time.Microsecond))
	case p.Stalls > 0:
		s += fmt.Sprintf(", stalls every %v", p.Stalls.Round(time.Millisecond))
	case p.Police > 0:
		s += fmt.Sprintf(", policer %.4g Mbit/s", p.Police/1e6)
	case p.CoDel:
		s += ", CoDel"
	}
	for _, f := range r.Flows[1:] {
		s += fmt.Sprintf(", %v from %v to %v at %.4g Mbit/s", f.Kind, f.From.Round(time.Millisecond),
			f.To.Round(time.Millisecond), f.Rate/1e6)
	}
	return s
}

// drawn are paths by chance.
func drawn(seed uint64) []randomPath {
	random := rand.New(rand.NewPCG(seed, 1))
	paths := make([]randomPath, randomPaths)
	for i := range paths {
		paths[i] = drawPath(random)
	}
	return paths
}

// TestWorst judges random paths and lists the worst ten: go test -run TestWorst -v -seed 7. It fails
// if too many are bad.
func TestWorst(t *testing.T) {
	paths := drawn(*seed)
	flaws := make([]flaw, len(paths))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range paths {
		group.Go(func() error {
			flaws[i] = p.flaws()
			flaws[i].path = i
			return nil
		})
	}
	_ = group.Wait()
	slices.SortStableFunc(flaws, func(a, b flaw) int { return -cmp.Compare(a.size, b.size) })
	bad := slices.IndexFunc(flaws, func(f flaw) bool { return f.size <= 1 })
	if bad < 0 {
		bad = len(flaws)
	}
	t.Logf("seed %d: %d of %d paths are bad, the worst are", *seed, bad, len(paths))
	for _, f := range flaws[:*list] {
		t.Logf("%3d: %6.2f  %s", f.path, f.size, f.what)
	}
	if bad > mostBad {
		t.Errorf("more than %d are bad", mostBad)
	}
}

// mostBad is how many random paths may be bad until the controller masters all.
const mostBad = 110
