package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRoute checks that a route's message is rejected, or has a canonical form that stays the
// same when it is made canonical again.
func FuzzRoute(f *testing.F) {
	head := make([]byte, 12)
	f.Add(head)
	f.Add(append(head[:12:12], 8, 0, 8, 0, 12, 0, 11, 0)) // RTA_METRICS of nothing that is
	f.Add(append(head[:12:12], 12, 0, 8, 0, 8, 0, 11, 0, 1, 0, 0, 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := canonical(raw)
		if err != nil {
			return
		}
		twice, err := canonical(once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		if set, err := withMetrics(once, []Metric{{Name: "initcwnd", Value: "32"}}); err == nil {
			_, err = canonical(set)
			require.NoError(t, err)
		}
	})
}

// FuzzState checks that a file of saved values is rejected, or names only what undo may write.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"sysctls":[{"name":"net.ipv4.tcp_rmem","old":"4096 131072 6291456\n","ours":["4096 131072 33554432"]}]}`))
	f.Add([]byte(`{"version":1,"sysctls":[{"name":"net./../kernel.core_pattern","ours":["x"]}],"routes":[{"old":"AAAA","ours":[""]}]}`))
	f.Add([]byte(`{"version":2,"files":[{"path":"/etc/passwd","ours":["x"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		name := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.WriteFile(name, text, 0o600))
		s, err := loadState(name)
		if err != nil {
			return
		}
		for _, x := range s.Sysctls {
			path := filepath.Clean(linuxSystem{"/"}.sysctlPath(x.Name))
			require.Regexp(t, `^/proc/sys/net/[^/]`, path)
		}
		require.NoError(t, s.save(name))
		_, err = loadState(name)
		require.NoError(t, err)
	})
}
