package backup

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/web"
)

// WebJobs returns the backup jobs of this host for the dashboard.
func WebJobs() ([]web.Job, error) {
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
