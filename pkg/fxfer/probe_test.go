package fxfer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fxfer/fxfer/internal/identity"
)

func TestProbe(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := serve(t, identity.Read)
	defer s.stop()
	c := client(t, t.TempDir(), Options{})
	start := time.Now()
	r, err := c.Probe(t.Context(), s.invited(t), ProbeOptions{Time: minProbeTime, Streams: 2})
	require.NoError(t, err)
	t.Logf("%v %+v", time.Since(start), r)
}
