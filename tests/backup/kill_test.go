package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/snapshot"
)

var kills = flag.Int("kills", 6, "how often a process is killed")

const (
	killFiles = 40
	killSize  = 64 << 10
)

// writeGeneration replaces the file n of a source. All of its content belongs to one generation.
func writeGeneration(t *testing.T, dir string, n, generation int) {
	name := filepath.Join(dir, fmt.Sprintf("file%02d", n))
	require.NoError(t, os.WriteFile(name+".new", bytes.Repeat(fmt.Appendf(nil, "%07d\n", generation), killSize/8), 0o600))
	require.NoError(t, os.Rename(name+".new", name))
}

// snapshotNames returns the names of all visible snapshots.
func snapshotNames(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	for _, e := range entries {
		if _, err := snapshot.ParseName(e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	return names
}

// wholeSnapshots checks all visible snapshots and returns their names.
func wholeSnapshots(t *testing.T, dir string) (names []string) {
	for _, name := range snapshotNames(t, dir) {
		wrong := func() string {
			for n := range killFiles {
				text, err := os.ReadFile(filepath.Join(dir, name, fmt.Sprintf("file%02d", n)))
				switch {
				case err != nil:
					return err.Error()
				case len(text) != killSize || !bytes.Equal(text, bytes.Repeat(text[:8], killSize/8)) || text[7] != '\n':
					return fmt.Sprintf("file%02d is torn: %d bytes", n, len(text))
				}
			}
			return ""
		}()
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			continue // retention has just removed the snapshot
		}
		require.Empty(t, wrong, name)
		names = append(names, name)
	}
	return names
}

// Daemon, client and server are killed at any moment. Everything visible is whole, runs resume, and
// there is always a good backup.
func TestKills(t *testing.T) {
	t.Parallel()
	dice := dice(t)
	home, dir, source := t.TempDir(), t.TempDir(), t.TempDir()
	server, url := serve(t, home, dir)
	for n := range killFiles {
		writeGeneration(t, source, n, 0)
	}
	jobs := filepath.Join(home, "backup.yaml")
	require.NoError(t, os.WriteFile(jobs, fmt.Appendf(nil, `jobs:
- {name: j, schedule: "* * * * * *", sources: [%q], filters: ["*.new"], destination: %q, keep: {last: 3}, rate: 40mbit, compress: none, delta: none, retries: 100, backoff: 100ms}
`, source+"/", url+"/j"), 0o600))
	daemon := &process{t: t, home: home, args: []string{"backup", "daemon", "--quiet"}}
	daemon.start()
	t.Cleanup(daemon.kill)
	series := filepath.Join(dir, "j")
	newest := ""
	for kill := range *kills {
		for range 1 + dice.IntN(killFiles) {
			writeGeneration(t, source, dice.IntN(killFiles), kill+1)
		}
		time.Sleep(time.Duration(dice.IntN(1500)) * time.Millisecond) // the moment is random
		victims := [][]*process{{daemon}, {server}, {daemon, server}}[dice.IntN(3)]
		for _, v := range victims {
			v.kill()
		}
		names := wholeSnapshots(t, series)
		if newest != "" {
			require.NotEmpty(t, names, "no good backup after kill %d", kill)
			require.GreaterOrEqual(t, names[len(names)-1], newest, "the newest was removed")
		}
		if len(names) > 0 {
			newest = names[len(names)-1]
		}
		for _, v := range victims {
			v.start()
		}
	}
	// The present content of the source becomes a snapshot.
	for n := range killFiles {
		writeGeneration(t, source, n, 9_999_999)
	}
	last := filepath.Join(series, "latest", fmt.Sprintf("file%02d", killFiles-1))
	require.Eventually(t, func() bool {
		for n := range killFiles {
			text, err := os.ReadFile(filepath.Join(series, "latest", fmt.Sprintf("file%02d", n)))
			if err != nil || !bytes.HasPrefix(text, []byte("9999999\n")) {
				return false
			}
		}
		return true
	}, 90*time.Second, 100*time.Millisecond, last)
	// Each kill may have come between a snapshot and its retention. The next whole run catches up.
	require.Eventually(t, func() bool { return len(snapshotNames(t, series)) <= 3 }, 90*time.Second, 10*time.Millisecond)
	require.NoError(t, daemon.cmd.Process.Signal(os.Interrupt))
	_ = daemon.cmd.Wait()
	daemon.cmd = nil
	require.LessOrEqual(t, len(wholeSnapshots(t, series)), 4, "retention keeps three, and the last run may not have come to it")

	dues, good := map[string]bool{}, 0
	for line := range strings.Lines(output(t, fxfer(home, "history", "--json", "--job", "j"))) {
		var run struct {
			Due     time.Time
			Outcome string
			Error   string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &run))
		require.Equal(t, "good", run.Outcome, run.Error)
		require.False(t, dues[run.Due.String()], "the run of %v was made twice", run.Due)
		dues[run.Due.String()] = true
		good++
	}
	t.Logf("%d kills, %d runs, all good, %d snapshots left", *kills, good, len(wholeSnapshots(t, series)))
}
