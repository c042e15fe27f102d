package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// quota is a control group that limits the processor time of its processes.
type quota struct{ path string }

const (
	quotaPrefix = "fxfer-diagnose-"
	quotaPeriod = 50_000 // µs
)

// newQuota makes a group for a share of one processor, in cgroup v2 or v1. The caller calls remove
// when the processes of the group are gone.
func newQuota(name string, share float64) (*quota, error) {
	const root = "/sys/fs/cgroup"
	q := &quota{filepath.Join(root, "cpu", quotaPrefix+name)}
	limit := map[string]string{"cpu.cfs_period_us": strconv.Itoa(quotaPeriod), "cpu.cfs_quota_us": strconv.Itoa(int(share * quotaPeriod))}
	if text, err := os.ReadFile(root + "/cgroup.subtree_control"); err == nil && strings.Contains(string(text), "cpu") {
		q.path = filepath.Join(root, quotaPrefix+name)
		limit = map[string]string{"cpu.max": fmt.Sprintf("%d %d", int(share*quotaPeriod), quotaPeriod)}
	}
	if err := os.Mkdir(q.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("limit processor time: %w", err)
	}
	for file, value := range limit {
		if err := os.WriteFile(filepath.Join(q.path, file), []byte(value), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("limit processor time: %w", err), q.remove())
		}
	}
	return q, nil
}

// hold puts a process with all its threads into the group.
func (q *quota) hold(pid int) error {
	return os.WriteFile(filepath.Join(q.path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

func (q *quota) remove() error { return os.Remove(q.path) }

// removeQuotas removes the groups that killed runs left.
func removeQuotas() {
	for _, dir := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"} {
		left, _ := filepath.Glob(filepath.Join(dir, quotaPrefix+"*")) // the pattern is valid
		for _, path := range left {
			_ = os.Remove(path) // fails for a group that has processes
		}
	}
}
