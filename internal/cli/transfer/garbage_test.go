package transfer

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// percent is what debug.SetGCPercent has set last.
func percent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// TestCollectLate: only the first garbage collection is late, and a user's setting stays.
func TestCollectLate(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "100")
	collectLate()
	require.Equal(t, 100, percent())
	t.Setenv("GOGC", "")
	require.Eventually(t, func() bool { // a collection of another test may come in between
		collectLate()
		return percent() == 800
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		runtime.GC()
		return percent() == 100
	}, time.Minute, time.Millisecond)
}
