package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadFiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease":                                  "6.1.0-32-amd64\n",
		"proc/sys/net/ipv4/tcp_rmem":                                 "4096\t131072\t6291456\n",
		"proc/sys/net/ipv4/tcp_sack":                                 "1\n",
		"proc/meminfo":                                               "MemFree: 1 kB\nMemTotal:        4025456 kB\n",
		"proc/thread-self/net/softnet_stat":                          "0000000a 00000001 0 0\n000000ff 00000010 0 0\n\n",
		"lib/modules/6.1.0-32-amd64/kernel/net/ipv4/tcp_bbr.ko.xz":   "",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_governor":    "powersave\n",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_driver":      "acpi-cpufreq\n",
		"sys/devices/system/cpu/cpufreq/policy0/affected_cpus":       "0 1 2 3\n",
		"sys/devices/system/cpu/cpufreq/policy4/something_different": "x\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	require.NoError(t, os.Chmod(filepath.Join(root, "proc/sys/net/ipv4/tcp_sack"), 0o444))
	h, err := linuxSystem{root}.read()
	require.NoError(t, err)
	require.Equal(t, "6.1.0-32-amd64", h.Kernel)
	require.EqualValues(t, 4025456<<10, h.Memory)
	require.Equal(t, map[string]Sysctl{
		"net.ipv4.tcp_rmem": {"4096\t131072\t6291456\n", true},
		"net.ipv4.tcp_sack": {"1\n", false},
	}, h.Sysctls)
	require.True(t, h.BBRModule)
	require.Equal(t, []Governor{{"acpi-cpufreq", "powersave", 4}}, h.Governors)
	require.Equal(t, &Backlog{Packets: 265, Dropped: 17}, h.Backlog)

	_, err = linuxSystem{t.TempDir()}.read()
	require.ErrorContains(t, err, "shows no network settings")
}

// TestReadThisHost checks what every Linux system has.
func TestReadThisHost(t *testing.T) {
	h, err := Read()
	require.NoError(t, err)
	require.NotEmpty(t, h.Kernel)
	require.Positive(t, h.Memory)
	require.Contains(t, h.Sysctls, "net.ipv4.tcp_rmem")
	require.Positive(t, h.Files)
	for _, r := range h.Routes {
		require.Contains(t, r.Spec, "default")
	}
	require.NotEmpty(t, Examine(h, wan).Fine)
}

func TestMeasureDisk(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	d := MeasureDisk(t.Context(), dir)
	require.Empty(t, d.Problem)
	require.Less(t, time.Since(start), 10*time.Second)
	require.Positive(t, d.Write)
	require.Positive(t, d.Read)
	require.Empty(t, filesIn(t, dir))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Contains(t, MeasureDisk(ctx, dir).Problem, "canceled")
	require.NotEmpty(t, MeasureDisk(t.Context(), filepath.Join(dir, "nowhere")).Problem)
	require.Empty(t, filesIn(t, dir))
}

func TestTimedStops(t *testing.T) {
	calls := 0
	done, took, err := timed(t.Context(), time.Hour, 3*diskBlock, func(int64) error { calls++; return nil })
	require.NoError(t, err)
	require.EqualValues(t, 3*diskBlock, done)
	require.Positive(t, took)
	done, _, err = timed(t.Context(), time.Nanosecond, 1<<40, func(int64) error { calls++; return nil })
	require.NoError(t, err)
	require.EqualValues(t, diskBlock, done)
	require.Equal(t, 4, calls)
}
