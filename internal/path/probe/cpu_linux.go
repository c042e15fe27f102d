package probe

import (
	"os"
	"strconv"
	"strings"
)

// cpuTimes returns the busy time and the total time of this host's CPUs in ticks. Both are 0 if
// unknown.
func cpuTimes() (busy, all uint64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	// cpu user nice system idle iowait irq softirq steal: see proc(5). Later fields (guest time)
	// are part of user already.
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseUint(f, 10, 64)
		if i == 0 || i > 8 || err != nil {
			continue
		}
		all += n
		if i != 4 && i != 5 {
			busy += n
		}
	}
	return busy, all
}
