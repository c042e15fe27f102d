package serve

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reloading is what systemd wants to hear before a reload: a time after which that began (sd_notify(3)).
func reloading() []string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000)}
}
