package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPresets(t *testing.T) {
	for _, p := range Presets {
		t.Run(p.Name, func(t *testing.T) {
			l, err := PresetLink(p.Name)
			require.NoError(t, err)
			require.Equal(t, p.Link, l)
			require.NotEmpty(t, p.What)
			require.NotEmpty(t, p.Source)
			l, err = l.withDefaults()
			require.NoError(t, err)
			there, back := l.directions()
			require.LessOrEqual(t, there.Rate, back.Rate, "up and down")
			for _, d := range []Link{there, back} { // two full packets fit, and a full queue takes 3 s at most
				require.GreaterOrEqual(t, d.queueBytes(), int64(2*(d.MTU+frameOverhead)))
				require.Less(t, time.Duration(d.queueBytes()*8e9/d.Rate), 3*time.Second)
			}
		})
	}
	_, err := PresetLink("tin-can")
	require.ErrorContains(t, err, `"tin-can"`)
	require.ErrorContains(t, err, "modem56")
}
