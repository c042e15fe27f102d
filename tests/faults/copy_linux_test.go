package faults

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// TestCopyInTheLab: a client on a narrow line has one server send files to another one, and is killed
// at once. It pauses and resumes the copy from there, and cancels another one. The copy is exact, and
// the content takes the line between the servers only.
func TestCopyInTheLab(t *testing.T) {
	const size = 24 << 20
	c := startChain(t,
		lab.Leg{Link: lab.Link{Rate: 10e6, RTT: 20 * time.Millisecond}}, lab.Leg{Link: lab.Link{Rate: 300e6, RTT: 20 * time.Millisecond}})
	content := bytes.Repeat([]byte("a line that does not compress itself\n"), size/37)
	for _, name := range []string{"x", "y"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "x/f"), content, 0o644))
	from := c.serve(c.Middle[0], "berlin", "ro", "--copies", "--share", "x=x:ro")
	to := c.serve(c.Right, "oslo", "wo", "--share", "y=y:wo")

	type status struct {
		ID, State string
		Bytes     int64
		Rate      int64 `json:"rate_bits_per_second"`
	}
	look := func() (all []status, ok bool) {
		out, err := c.command(c.Left, "client", "queue", "--json", from).Output()
		for line := range bytes.Lines(out) {
			var s status
			ok = err == nil && json.Unmarshal(line, &s) == nil
			if !ok {
				return nil, false
			}
			all = append(all, s)
		}
		return all, ok
	}
	// await waits until a copy that is killed at once is in a state.
	await := func(i int, states ...string) (s status) {
		t.Helper()
		require.Eventually(t, func() bool {
			all, ok := look()
			if !ok || len(all) <= i {
				return false
			}
			s = all[i]
			for _, state := range states {
				if s.State == state && (state != "running" || s.Bytes > 0) {
					return true
				}
			}
			return false
		}, 4*time.Minute, 100*time.Millisecond, "copy %d is %v", i, states)
		return s
	}
	ask := func(args ...string) {
		all, _ := look()
		asking := c.command(c.Left, "client", append([]string{"copy"}, args...)...)
		require.NoError(t, asking.Start())
		require.Eventually(t, func() bool { now, ok := look(); return ok && len(now) > len(all) }, 2*time.Minute, 20*time.Millisecond, "the copy is in the queue")
		require.NoError(t, asking.Process.Kill())
		_ = asking.Wait()
	}
	ask(from+"/x/", to+"/y/new")
	s := await(0, "done")
	got, err := os.ReadFile(filepath.Join(c.dir, "y/new/f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got), "the copy is exact")
	legs := c.LegCounters()
	near, far := legs[0][0].Bytes+legs[0][1].Bytes, legs[1][0].Bytes
	t.Logf("%d bytes near the client, %d between the servers, %.1f Mbit/s", near, far, float64(s.Rate)/1e6)
	require.Greater(t, far, int64(size*9/10))
	require.Less(t, near, int64(size/4), "what the client and both servers have said")

	ask("--rate-limit", "20mbit", from+"/x/f", to+"/y/slow")
	s = await(1, "running")
	c.run("client", "queue", "pause", from, s.ID)
	paused := await(1, "paused")
	c.run("client", "queue", "resume", from, s.ID)
	s = await(1, "done")
	t.Logf("paused at %d of %d bytes", paused.Bytes, s.Bytes)
	require.Less(t, paused.Bytes, s.Bytes)
	got, err = os.ReadFile(filepath.Join(c.dir, "y/slow"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got), "it is exact after a pause")

	ask("--rate-limit", "1mbit", from+"/x/f", to+"/y/none")
	s = await(2, "running")
	c.run("client", "queue", "cancel", from, s.ID)
	await(2, "cancelled")
	require.NoFileExists(t, filepath.Join(c.dir, "y/none"))
}
