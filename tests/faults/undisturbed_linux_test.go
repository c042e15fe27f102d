package faults

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	longPause = 500 * time.Millisecond // in which this process did not run
	attempts  = 20                     // at a lab while the machine stands still
)

// labs runs a test in n labs, some of them at the same time. What try returns is called for labs that
// were undisturbed.
func labs(t *testing.T, n, atOnce int, try func(testing.TB) (count func())) {
	t.Helper()
	slots := make(chan struct{}, atOnce)
	t.Run("labs", func(t *testing.T) { // returns when all have ended
		for i := range n {
			t.Run(strconv.Itoa(i+1), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				undisturbed(t, longPause, try)
			})
		}
	})
}

// undisturbed calls try until this process did not stand still for that long meanwhile: what is
// measured while it does says nothing, and neither does a failure.
func undisturbed(t *testing.T, long time.Duration, try func(testing.TB) (count func())) {
	t.Helper()
	for n := 1; ; n++ {
		a := &attempt{TB: t}
		var count func()
		pause := hosts.Watch()
		var run sync.WaitGroup
		run.Go(func() { count = try(a) })
		run.Wait()
		stood := pause()
		switch {
		case t.Skipped():
			t.SkipNow()
		case stood >= long && n < attempts:
			t.Logf("discarded: nothing ran for %v", stood.Round(time.Millisecond))
			continue
		case stood >= long:
			t.Fatalf("the machine is too busy: in each of %d attempts, nothing ran for %v or more", attempts, long)
		case len(a.failures) > 0:
			t.Fatal(strings.Join(a.failures, "\n"))
		}
		count()
		return
	}
}

// attempt is a test that keeps its failures: they count only if the machine let it run.
type attempt struct {
	testing.TB
	failures []string
}

func (a *attempt) Errorf(format string, args ...any) {
	a.failures = append(a.failures, fmt.Sprintf(format, args...))
}

func (a *attempt) FailNow() {
	a.failures = append(a.failures, "stopped")
	runtime.Goexit()
}
