package hosts

import "time"

const tickEvery = 20 * time.Millisecond

// Watch looks for times in which this process does not run, because the machine is too busy or
// stands still. The function that it returns ends that, and returns the longest of them.
func Watch() (pause func() time.Duration) {
	var longest time.Duration
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				now := time.Now()
				longest, last = max(longest, now.Sub(last)), now
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		<-stopped
		return longest
	}
}
