package lab

import "math/rand/v2"

// jitter varies the delay of one direction. Time is cut into steps of Link.Jitter.
// In each step, the delay differs from its mean by an amount that is drawn uniformly between minus
// and plus half of Link.Jitter. So the round-trip time strays from its mean by up to Link.Jitter
// each way. Packets keep their order: after a step downward, some wait for those before them.
type jitter struct {
	span int64 // ns between the least and the largest delay, and from one step to the next; 0: none
	seed uint64
	step int64 // the step that now is for; -1: none
	now  int64
}

// at returns by how much the delay of a packet that leaves the line at time t differs from its
// mean.
func (j *jitter) at(t int64) int64 {
	if j.span == 0 {
		return 0
	}
	if step := t / j.span; step != j.step {
		j.step = step
		j.now = rand.New(rand.NewPCG(j.seed, uint64(step))).Int64N(j.span+1) - j.span/2
	}
	return j.now
}
