package disk

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestExtentsAgainstSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 40
		var e extents
		set := map[int64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				b := rapid.Int64Range(0, most).Draw(t, "block")
				e.add(b)
				set[b] = true
			},
			"remove": func(t *rapid.T) {
				b := rapid.Int64Range(0, most).Draw(t, "block")
				e.remove(b)
				delete(set, b)
			},
			"": func(t *rapid.T) {
				require.EqualValues(t, len(set), e.count)
				end := int64(-1)
				total := int64(0)
				for _, run := range e.runs {
					require.Greater(t, run.Start, end, "ascending and not adjacent: %v", e.runs)
					require.Positive(t, run.Count)
					end = run.Start + run.Count
					total += run.Count
				}
				require.Equal(t, e.count, total)
				require.Equal(t, e.count == 0 || e.runs[0] == Extent{0, e.count}, e.isFirst(e.count))
				for b := range int64(most + 2) {
					require.Equal(t, set[b], e.has(b), "block %d of %v", b, e.runs)
				}
			},
		})
	})
}
