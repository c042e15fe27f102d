package main

// bottleneck is what a pass waits for.
type bottleneck struct {
	what    resource
	saved   float64 // part of the pass that is saved if this is twice as fast
	before  pass    // with it
	without float64 // seconds, if this takes no time
}

// bottlenecks finds so many, each after those before it are removed. The first one is what makes the
// pass shorter than anything else does, if it is twice as fast.
func (m fleetModel) bottlenecks(n int) (all []bottleneck) {
	now := m.simulate()
	for range n {
		b := bottleneck{what: resources, before: now}
		for what, busy := range now.busy {
			if m.faster[what] > 0 || busy < negligible {
				continue
			}
			twice := m
			twice.faster[what] = 2
			if saved := 1 - twice.simulate().total/now.total; b.what == resources || saved > b.saved {
				b.what, b.saved = resource(what), saved
			}
		}
		if b.what == resources {
			break
		}
		m.faster[b.what] = removed
		now = m.simulate()
		b.without = now.total
		all = append(all, b)
	}
	return all
}

const (
	// removed is how much faster something is that is no bottleneck any more.
	removed = 1e6
	// negligible is the part of a pass for which a bottleneck is busy at least: twice as fast, it saves
	// half of that.
	negligible = 0.01
)
