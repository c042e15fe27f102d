package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// openPages listens for metrics and dashboard, before the process is confined.
func openPages(f *serveFlags, server *fxfer.Server) (*web.Pages, error) {
	pages, err := web.Listen(f.web, server, web.Options{Version: version(), Home: server.Home(), Names: []string{f.name}, Log: f.opt.Log, Jobs: webJobs})
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	return pages, nil
}

// servePages answers until the func it returns is called: also while transfers end, so that a probe sees that.
func servePages(pages *web.Pages, said *serverLog) (stop func()) {
	said.print("dashboard on " + pages.URL()) // not into a log: it holds the token
	said.tell(fmt.Sprintf("metrics on http://%s/metrics", pages.Addr()), "metrics and dashboard", "address", fmt.Sprint(pages.Addr()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pages.Serve(ctx); err != nil {
			said.log.Error("metrics and dashboard", "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// webJobs tells the dashboard of the backup jobs that this host has.
func webJobs() ([]web.Job, error) {
	file := os.Getenv("FXFER_BACKUP")
	s, err := openSite(file)
	if errors.Is(err, fs.ErrNotExist) && file == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []web.Job
	for _, j := range s.config.Jobs {
		status, err := s.status(j, time.Now())
		if err != nil {
			return nil, err
		}
		all = append(all, webJob(status))
	}
	return all, nil
}

func webJob(s *backup.Status) web.Job {
	j := web.Job{
		Name: s.Job.Name, Condition: string(s.Condition), Alarm: s.Alarm, Good: web.Milli(s.State.LastGood), Next: web.Milli(s.Next), Hint: s.Hint,
	}
	if last := s.State.Last; last != nil {
		j.Ended, j.Outcome, j.Error, j.Limiter, j.Written = web.Milli(last.Ended), string(last.Outcome), last.Error, last.Limiter, last.Written
	}
	if f := s.Forecast; f != nil {
		j.Ends, j.Late = web.Milli(f.End), !f.Closes.IsZero() && !f.Fits
	}
	return j
}
