package outbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// hints reports that something may have changed below a folder. It may miss changes, because scans
// find them anyway, a little later.
type hints struct {
	watcher *fsnotify.Watcher // nil where the kernel does not notify
	log     func(text string)
	full    bool // of watches; that was reported
}

// newHints prepares hints about dir. log gets one line about each lack of them.
func newHints(dir string, log func(string)) *hints {
	h := &hints{log: log}
	if kind := remoteType(dir); kind != "" {
		log(fmt.Sprintf("%s is on %s, which does not report what other hosts write: scanning every %s", dir, kind, pollEvery))
		return h
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log(fmt.Sprintf("no notifications, scanning every %s: %v", pollEvery, err))
		return h
	}
	h.watcher = w
	return h
}

// watch adds the folders that a scan found. The kernel forgets folders that are gone.
func (h *hints) watch(dir string, folders []string) {
	if h.watcher == nil || h.full {
		return
	}
	for i, f := range folders {
		err := h.watcher.Add(filepath.Join(dir, filepath.FromSlash(f)))
		if isFullOfWatches(err) {
			h.full = true
			h.log(fmt.Sprintf("only %d of %d folders have notifications, because the limit is reached (fs.inotify.max_user_watches on Linux): scanning every %s",
				i, len(folders), pollEvery))
			return
		}
	}
}

// every returns the longest time between two scans.
func (h *hints) every() time.Duration {
	if h.watcher == nil || h.full {
		return pollEvery
	}
	return scanEvery
}

// events returns the channels of events and errors; both are nil where the kernel does not notify.
func (h *hints) events() (<-chan fsnotify.Event, <-chan error) {
	if h.watcher == nil {
		return nil, nil
	}
	return h.watcher.Events, h.watcher.Errors
}

// failed reports an error of the notifications. Too many of them at once need no report beyond a
// line: the next scan finds what they were about.
func (h *hints) failed(err error) {
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		h.log("too many notifications at once: scanning")
		return
	}
	h.log(fmt.Sprintf("notifications: %v", err))
}

func (h *hints) close() {
	if h.watcher != nil {
		_ = h.watcher.Close()
	}
}
