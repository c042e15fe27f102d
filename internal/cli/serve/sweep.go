package serve

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// parsePartialAge is units.ParseTime, but also accepts "none", which is 0.
func parsePartialAge(s string) (time.Duration, error) {
	if s == "none" {
		return 0, nil
	}
	d, err := units.ParseTime(s)
	if err == nil && d < time.Hour {
		err = fmt.Errorf("%q is less than an hour: clients that retry would find nothing to resume", s)
	}
	return d, err
}

// sweepEvery is how often a server looks for stale partial files.
const sweepEvery = 24 * time.Hour

// sweeper regularly removes stale partial files from shares.
type sweeper struct {
	mu     sync.Mutex
	shares []fxfer.Share
	age    time.Duration // 0 is never
}

func (w *sweeper) set(shares []fxfer.Share, age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shares, w.age = shares, age
}

// run removes stale partial files until ctx ends.
func (w *sweeper) run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		w.mu.Lock()
		shares, age := w.shares, w.age
		w.mu.Unlock()
		for _, s := range shares {
			if age == 0 {
				break
			}
			removed, err := sweepShare(ctx, s.Dir, age)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				log.Warn("stale partial files", "share", s.Name, "removed", removed, "error", err)
			case removed > 0:
				log.Info("stale partial files", "share", s.Name, "removed", removed)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func sweepShare(ctx context.Context, dir string, age time.Duration) (removed int, err error) {
	tree, err := disk.Open(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tree.Close() }()
	return tree.Sweep(ctx, ".", age)
}
