package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for s, line := range map[string]*namedLine{
		"wan=1gbit":        {"wan", fleet.Line{Rate: 1e9}},
		"wan-2=1gbit,low":  {"wan-2", fleet.Line{Rate: 1e9, Priority: fxfer.PriorityLow}},
		"wan=10MB/s,high":  {"wan", fleet.Line{Rate: 8e7, Priority: fxfer.PriorityHigh}},
		"wan=1gbit,auto":   {"wan", fleet.Line{Rate: 1e9}},
		"wan":              nil,
		"wan=":             nil,
		"wan=none":         nil,
		"wan=0":            nil,
		"=1gbit":           nil,
		"my wan=1gbit":     nil,
		"wan.2=1gbit":      nil,
		"wan=1gbit,lowest": nil,
		"wan=1gbit,":       nil,
	} {
		l, err := parseLine(s)
		if line == nil {
			require.Error(t, err, s)
			continue
		}
		require.NoError(t, err, s)
		require.Equal(t, *line, l, s)
	}
}
