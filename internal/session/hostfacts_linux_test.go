package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuotaGroups(t *testing.T) {
	require.Equal(t, []quotaGroup{{"/sys/fs/cgroup", "/user.slice/a:b", false}}, quotaGroups("0::/user.slice/a:b\n"))
	require.Equal(t, []quotaGroup{{"/sys/fs/cgroup/cpu", "/x", true}, {"/sys/fs/cgroup", "/", false}},
		quotaGroups("9:name=systemd:/\n4:cpu,cpuacct:/x\n3:cpuset:/y\n0::/\n"))
	require.Empty(t, quotaGroups("odd\n"))
}

func TestQuota(t *testing.T) {
	root := t.TempDir()
	write := func(dir, file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, file), []byte(text), 0o644))
	}
	write("two", "cpu.max", "20000 100000\n")
	write("free", "cpu.max", "max 100000\n")
	write("one", "cpu.cfs_quota_us", "-1\n")
	write("one", "cpu.cfs_period_us", "100000\n")
	write("one/low", "cpu.cfs_quota_us", "5000\n")
	write("one/low", "cpu.cfs_period_us", "50000\n")
	for _, test := range []struct {
		dir           string
		v1            bool
		quota, period int64
	}{
		{"/two", false, 20000, 100000}, {"/free", false, 0, 100000}, {"/", false, 0, 0},
		{"/one", true, -1, 100000}, {"/one/low", true, 5000, 50000},
	} {
		g := quotaGroup{root, test.dir, test.v1}
		quota, period := g.quota(test.dir)
		require.Equal(t, [2]int64{test.quota, test.period}, [2]int64{quota, period}, test.dir)
	}
}
