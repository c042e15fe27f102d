package blockset

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type extent struct{ Start, Count int64 }

func TestRuns(t *testing.T) {
	for name, c := range map[string]struct {
		start []extent
		do    func(*Set)
		want  []extent
	}{
		"empty":                  {nil, func(*Set) {}, nil},
		"given adjacent":         {[]extent{{0, 2}, {2, 3}}, func(*Set) {}, []extent{{0, 5}}},
		"append":                 {[]extent{{0, 2}}, func(s *Set) { s.Add(2) }, []extent{{0, 3}}},
		"prepend":                {[]extent{{1, 2}}, func(s *Set) { s.Add(0) }, []extent{{0, 3}}},
		"fill the gap":           {[]extent{{0, 2}, {3, 1}}, func(s *Set) { s.Add(2) }, []extent{{0, 4}}},
		"leave a gap":            {[]extent{{0, 2}}, func(s *Set) { s.Add(3) }, []extent{{0, 2}, {3, 1}}},
		"swallow runs":           {[]extent{{1, 1}, {3, 1}, {9, 1}}, func(s *Set) { s.AddRun(0, 5) }, []extent{{0, 5}, {9, 1}}},
		"add nothing":            {[]extent{{1, 1}}, func(s *Set) { s.AddRun(0, 0) }, []extent{{1, 1}}},
		"split":                  {[]extent{{0, 5}}, func(s *Set) { s.Remove(2) }, []extent{{0, 2}, {3, 2}}},
		"cut both ends":          {[]extent{{0, 5}, {6, 5}}, func(s *Set) { s.RemoveRun(3, 5) }, []extent{{0, 3}, {8, 3}}},
		"remove what is missing": {[]extent{{5, 1}}, func(s *Set) { s.RemoveRun(0, 5) }, []extent{{5, 1}}},
		"pop":                    {[]extent{{3, 2}, {7, 1}}, func(s *Set) { s.Pop() }, []extent{{4, 1}, {7, 1}}},
		"pop a run":              {[]extent{{3, 1}, {7, 1}}, func(s *Set) { s.Pop() }, []extent{{7, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(c.start)
			s := Of(c.start)
			c.do(&s)
			require.Equal(t, c.want, Runs[extent](s))
			require.Equal(t, given, c.start, "the runs given are copied")
		})
	}
}

// TestAgainstMap does to a Set and to a map what a Set can do, and compares the two.
func TestAgainstMap(t *testing.T) {
	const most = 40
	blocks := rapid.Int64Range(0, most)
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		set := map[int64]bool{}
		draw := func(t *rapid.T) (start, count int64) {
			return blocks.Draw(t, "start"), rapid.Int64Range(0, 10).Draw(t, "count")
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				b := blocks.Draw(t, "block")
				s.Add(b)
				set[b] = true
			},
			"add run": func(t *rapid.T) {
				start, count := draw(t)
				s.AddRun(start, count)
				for b := start; b < start+count; b++ {
					set[b] = true
				}
			},
			"remove": func(t *rapid.T) {
				b := blocks.Draw(t, "block")
				s.Remove(b)
				delete(set, b)
			},
			"remove run": func(t *rapid.T) {
				start, count := draw(t)
				s.RemoveRun(start, count)
				for b := start; b < start+count; b++ {
					delete(set, b)
				}
			},
			"pop": func(t *rapid.T) {
				if s.Empty() {
					t.Skip("empty")
				}
				b := s.Pop()
				require.True(t, set[b])
				delete(set, b)
				for lower := range b {
					require.False(t, set[lower])
				}
			},
			"union": func(t *rapid.T) {
				var other Set
				for range rapid.IntRange(0, 3).Draw(t, "runs") {
					start, count := draw(t)
					other.AddRun(start, count)
				}
				for b := range other.Blocks() {
					set[b] = true
				}
				s = s.Union(other)
			},
			"within": func(t *rapid.T) {
				start, count := draw(t)
				part := s.Within(start, count)
				check(t, &part)
				for b := range int64(2 * most) {
					require.Equal(t, set[b] && b >= start && b < start+count, part.Has(b))
				}
			},
			"": func(t *rapid.T) {
				check(t, &s)
				require.EqualValues(t, len(set), s.Count())
				require.Equal(t, len(set) == 0, s.Empty())
				prefix, end := int64(0), int64(0)
				for set[prefix] {
					prefix++
				}
				for b := range int64(2 * most) {
					require.Equal(t, set[b], s.Has(b), "block %d of %v", b, s.runs)
					if set[b] {
						end = b + 1
					}
				}
				require.Equal(t, prefix, s.Prefix())
				require.Equal(t, end, s.End())
			},
		})
	})
}

// check requires what always holds for a set.
func check(t *rapid.T, s *Set) {
	end, total := int64(-1), int64(0)
	for r := range s.All() {
		require.Greater(t, r.Start, end, "ascending and not adjacent: %v", s.runs)
		require.Positive(t, r.Count)
		end = r.End()
		total += r.Count
	}
	require.Equal(t, total, s.Count())
	require.Len(t, slices.Collect(s.Blocks()), int(total))
}

func TestClone(t *testing.T) {
	s := Of([]Run{{0, 5}})
	c := s.Clone()
	c.Pop()
	require.True(t, s.Has(0))
}

func TestNoAllocation(t *testing.T) {
	s := Of([]Run{{0, 5}, {10, 5}, {20, 5}})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Add(5)
		s.Remove(5)
		s.Remove(12)
		s.Add(12)
	}))
}
