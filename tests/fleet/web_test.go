//go:build linux

package fleet_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
)

// TestWeb reads the metrics and the dashboard's data of a controller before a worker is there, while it
// works, and at the end. Then the controller is killed, and begins again.
func TestWeb(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0, "none", short, "--web", free(t))
	page, _, _ := strings.Cut(s.controller.says("fxfer: dashboard on "), ",")
	token, err := os.ReadFile(filepath.Join(s.dir, "controller", "fleet", "web-token"))
	require.NoError(t, err)
	ask := func(path string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return ""
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return string(text)
	}
	measures := func(line string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(ask("metrics"), "\n"+line+"\n") }, longest, 100*time.Millisecond, line)
	}
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.source(), name), make([]byte, 1<<20), 0o600))
	}
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 1})
	measures(`fxfer_fleet_jobs{state="listing"} 1`)
	measures(`fxfer_fleet_workers{status="idle"} 0`)
	require.Eventually(t, func() bool { return !strings.Contains(ask("metrics"), "\nfxfer_fleet_queue_age_seconds 0\n") }, longest, 100*time.Millisecond)
	s.work("member", "2mbit")
	measures(`fxfer_fleet_workers{status="busy"} 1`)
	measures(`fxfer_fleet_shards{status="running"} 1`)
	s.wait(id)
	for _, line := range []string{
		`fxfer_fleet_jobs{state="done"} 1`, `fxfer_fleet_jobs_ended_total{state="done"} 1`, `fxfer_fleet_tasks_ended_total{kind="shard",outcome="done"} 3`,
		`fxfer_fleet_tasks_ended_total{kind="finish",outcome="done"} 1`, `fxfer_fleet_written_bytes_total 3.145728e+06`,
		`fxfer_fleet_workers{status="idle"} 1`, `fxfer_fleet_queue_age_seconds 0`, `fxfer_fleet_shards{status="running"} 0`, `fxfer_fleet_ready 1`,
	} {
		measures(line)
	}
	s.controller.kill()
	s.controller.start()
	measures(`fxfer_fleet_jobs{state="done"} 1`)
	measures(`fxfer_fleet_jobs_ended_total{state="done"} 0`)
	measures(`fxfer_fleet_workers{status="idle"} 1`)
	var f struct {
		Jobs    []struct{ ID, State string }
		Workers []struct{ Name, Task string }
	}
	require.NoError(t, json.Unmarshal([]byte(ask("api/fleet")), &f))
	require.Len(t, f.Jobs, 1)
	require.Equal(t, id, f.Jobs[0].ID)
	require.Equal(t, "done", f.Jobs[0].State)
	require.Equal(t, "w0", f.Workers[0].Name)
}
