// Package shard divides the files of a listing among processes that do not talk to each other. Each
// of them lists the files, makes the same plan, and takes its own part.
package shard

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxCount bounds the shards of a plan.
	MaxCount = 10_000
	// largePerShard is how many large files a shard has at most, on average. A smaller file is less than
	// this part of a shard, so chance alone spreads these evenly.
	largePerShard = 256
)

// Shard is one of Count parts of a listing. Index counts from 0. The zero Shard is all of it.
type Shard struct{ Index, Count int }

// Parse reads a Shard such as "3/8", the fourth of eight.
func Parse(s string) (Shard, error) {
	index, count, ok := strings.Cut(s, "/")
	i, err := strconv.ParseUint(index, 10, 31)
	n, errCount := strconv.ParseUint(count, 10, 31)
	if !ok || err != nil || errCount != nil || n == 0 {
		return Shard{}, fmt.Errorf("%q is not a shard such as 0/8", s)
	}
	one := Shard{int(i), int(n)}
	return one, one.Check()
}

// Check rejects what is no part of a listing.
func (s Shard) Check() error {
	switch {
	case s.All():
		return nil
	case s.Count < 0 || s.Count > MaxCount:
		return fmt.Errorf("there can't be %d shards, but 1 to %d", s.Count, MaxCount)
	case s.Index < 0 || s.Index >= s.Count:
		return fmt.Errorf("there is no shard %v: the last one is %v", s, Shard{s.Count - 1, s.Count})
	}
	return nil
}

// String returns what Parse reads, and "" for all.
func (s Shard) String() string {
	if s.All() {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Count)
}

// All reports whether the shard is the whole listing.
func (s Shard) All() bool { return s == Shard{} }

// Key identifies a file in all listings. Its bits have to be evenly distributed, like those of a
// digest. The names of one file share a key, so they stay in one shard.
type Key [16]byte

// Planner takes the files of a listing, in any order. Its memory follows the number of shards, not
// that of files.
type Planner struct {
	count int
	total uint64  // weight of all files
	large largest // the files that weigh most
	known map[Key]struct{}
}

// NewPlanner returns a Planner for so many shards.
func NewPlanner(count int) *Planner {
	return &Planner{count: count, known: make(map[Key]struct{})}
}

// Add takes one of the names of a file. weight is what the file costs, in bytes.
func (p *Planner) Add(key Key, weight, names uint64) {
	p.total += weight / max(names, 1)
	if _, ok := p.known[key]; ok {
		return
	}
	x := file{key, weight}
	if len(p.large) == p.count*largePerShard {
		if !p.large[0].less(x) {
			return
		}
		delete(p.known, p.large[0].key)
		heap.Pop(&p.large)
	}
	p.known[key] = struct{}{}
	heap.Push(&p.large, x)
}

// Plan decides. Equal sets of files make equal plans. A small difference between two sets moves few
// small files, but may move many large ones.
func (p *Planner) Plan() *Plan {
	large := slices.Clone(p.large)
	least := p.total / uint64(p.count*largePerShard)
	large = slices.DeleteFunc(large, func(x file) bool { return x.weight <= least })
	for i := range large { // a file that grows a little keeps its place
		large[i].weight = round(large[i].weight)
	}
	slices.SortFunc(large, func(a, b file) int {
		if b.less(a) {
			return -1
		}
		return 1
	})
	plan := &Plan{large: make(map[Key]int, len(large)), ends: make([]uint64, p.count)}
	load := make([]uint64, p.count)
	for _, x := range large { // the largest first, each to the shard with the least load (Graham 1969)
		i := lightest(load)
		load[i] += x.weight
		plan.large[x.key] = i
	}
	plan.fill(load, p.total)
	return plan
}

// round keeps the four highest bits of a weight, so that it is at most 1/8 less.
func round(weight uint64) uint64 {
	cut := max(0, bits.Len64(weight)-4)
	return weight >> cut << cut
}

// lightest returns the first shard with the least load.
func lightest(load []uint64) int {
	best := 0
	for i, l := range load {
		if l < load[best] {
			best = i
		}
	}
	return best
}

// Plan says which shard takes which file. It is safe for concurrent use.
type Plan struct {
	large map[Key]int
	ends  []uint64 // shard i takes small files from ends[i-1] up to ends[i], of ends[count-1]
}

// fill gives each shard a share of the small files, so that all have an equal load in the end.
func (p *Plan) fill(load []uint64, total uint64) {
	level := total / uint64(len(load))
	end := uint64(0)
	for i, l := range load {
		if l < level {
			end += level - l
		}
		p.ends[i] = end
	}
	if end == 0 { // there is no small file that matters
		for i := range p.ends {
			p.ends[i] = uint64(i) + 1
		}
	}
}

// Shard returns which shard takes a file.
func (p *Plan) Shard(key Key) int {
	if i, ok := p.large[key]; ok {
		return i
	}
	at, _ := bits.Mul64(binary.LittleEndian.Uint64(key[:]), p.ends[len(p.ends)-1])
	i, _ := slices.BinarySearch(p.ends, at+1) // the first that ends after it
	return i
}

// file is a file and its weight.
type file struct {
	key    Key
	weight uint64
}

// less orders files by weight, and those of the same weight by key.
func (x file) less(y file) bool {
	if x.weight != y.weight {
		return x.weight < y.weight
	}
	return string(x.key[:]) < string(y.key[:])
}

// largest is a heap with the smallest file on top.
type largest []file

func (l largest) Len() int           { return len(l) }
func (l largest) Less(i, j int) bool { return l[i].less(l[j]) }
func (l largest) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *largest) Push(x any)        { *l = append(*l, x.(file)) }
func (l *largest) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	*l = (*l)[:last]
	return x
}
