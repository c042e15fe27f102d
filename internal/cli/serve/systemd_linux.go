package serve

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reloading returns the assignments that announce a reload to systemd. The time distinguishes this
// reload from earlier ones (sd_notify(3)).
func reloading() []string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000)}
}
