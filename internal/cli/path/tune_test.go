package path

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/tune"
)

// experiment makes one on a line where goodput alternates by a share. That of 32 streams does so in step with the
// defaults.
func experiment(t *testing.T, goodput func(s tune.Setting) float64, swing float64) *tune.Report {
	runs := map[tune.Setting]int{}
	r, err := tune.Run(t.Context(), tune.Options{
		Servers: []string{"fxfer://nas"}, Settings: (&tune.Factors{Streams: []int{1, 32}}).Settings(), Size: 1e8, Rounds: 3, Budget: time.Minute, Seed: 1,
		Measure: func(_ context.Context, _ int, s tune.Setting, size int64, _ time.Duration) (tune.Measure, error) {
			time.Sleep(time.Second)
			runs[s]++
			up := []float64{1 - swing, 1 + swing}[(runs[s]+s.Streams/32)%2]
			return tune.Measure{Goodput: goodput(s) * up, RTT: 0.02, Delay: 0.001, Seconds: 1, Bytes: size}, nil
		},
	})
	require.NoError(t, err)
	return r
}

func TestTuneVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		goodput func(s tune.Setting) float64
		swing   float64
		want    string
	}{
		{func(tune.Setting) float64 { return 9e8 }, 0, "no setting differs from the defaults"},
		{func(tune.Setting) float64 { return 9e8 }, 0.2, "no setting certainly differs from the defaults. More rounds may show a difference: 1 stream"},
		{func(s tune.Setting) float64 { return 1e8 * float64(2+s.Streams) }, 0, "32 streams: 1600.0 % more goodput than the defaults (95 % interval +1600.0 % to +1600.0 %)"},
		{func(s tune.Setting) float64 { return 1e8 / float64(1+s.Streams) }, 0, "the defaults: no setting is better. Slower: 1 stream; 32 streams"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := experiment(t, c.goodput, c.swing)
			require.Equal(t, c.want, tuneVerdict(&r.Servers[0]))
			var text, page strings.Builder
			printTune(&text, r)
			require.Regexp(t, `(?m)^defaults +●`, text.String())
			require.NoError(t, writeTunePage(&page, r, "<b>", time.Now()))
			require.Contains(t, page.String(), "&lt;b&gt;")
			require.NotContains(t, page.String(), "NaN")
		})
	}
}
