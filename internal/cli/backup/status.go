package backup

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/units"
)

func newStatus(file *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "status [JOB...]",
		ValidArgsFunction: completeJobs(file, -1),
		Short:             "Show the state of the jobs, and when they will end",
		Long: `Status shows for each job the age of its newest good backup, how the last run
ended, what the job is doing, when it runs next, and when that run will end. The
forecast rests on the job's history and on the present goodput.

The exit code is 9 if a job needs attention: its newest good backup is older
than max-age, its last run failed, or a verification found damage.`,
		Args: func(c *cobra.Command, args []string) error { return option.NoEmpty(args) },
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openSite(*file)
			var problems config.Faults
			if errors.As(err, &problems) {
				return exit.Usage("a running daemon keeps the jobs that it has read before; `fxfer backup check` lists the faults", "%w", problems)
			}
			if err != nil {
				return err
			}
			jobs, err := s.jobs(args)
			if err != nil {
				return err
			}
			now := time.Now()
			var all []*backup.Status
			alarm := false
			for _, j := range jobs {
				status, err := s.status(j, now)
				if err != nil {
					return err
				}
				alarm = alarm || status.Alarm != ""
				all = append(all, status)
			}
			if asJSON {
				for _, status := range all {
					term.JSON(c.OutOrStdout(), jsonStatusOf(status))
				}
			} else {
				printStatus(c.OutOrStdout(), all, now)
			}
			if alarm {
				return exit.Status{Code: exitAlarm}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

func (s *site) status(j *backup.Job, now time.Time) (*backup.Status, error) {
	running := s.store.Running(j.Name)
	state, err := s.store.State(j.Name)
	if err != nil {
		return nil, err
	}
	history, err := s.store.History(j.Name, now.Add(-backup.ForecastFrom))
	if err != nil {
		return nil, err
	}
	return backup.StatusOf(j, state, history, running, now), nil
}

func printStatus(w io.Writer, all []*backup.Status, now time.Time) {
	rows := [][]string{{"job", "state", "good backup", "last run", "next run", "expected end"}}
	for _, s := range all {
		rows = append(rows, []string{s.Job.Name, conditionText(s), goodText(s), lastText(s), timeText(s.Next, s.Job.Zone, now), endText(s, now)})
	}
	term.Records(w, rows, 2)
	for _, s := range all {
		if s.Alarm != "" {
			fmt.Fprintf(w, "alarm: %s: %s\n", s.Job.Name, term.OneLine(s.Alarm))
		}
		if s.Warning != "" {
			fmt.Fprintf(w, "warning: %s: %s\n", s.Job.Name, s.Warning)
		}
		if last := s.State.Last; last != nil {
			for _, text := range last.Warnings {
				fmt.Fprintf(w, "warning: %s: %s\n", s.Job.Name, term.OneLine(text))
			}
		}
		if last := s.State.Last; last != nil {
			for _, text := range causeLines(last) {
				fmt.Fprintf(w, "failed: %s: %s\n", s.Job.Name, text)
			}
		}
		if last := s.State.Last; last != nil && last.Error != "" {
			fmt.Fprintf(w, "error: %s: %s\n", s.Job.Name, term.OneLine(last.Error))
			if last.Hint != "" {
				fmt.Fprintf(w, "hint: %s: %s\n", s.Job.Name, term.OneLine(last.Hint))
			}
		}
		if s.Hint != "" {
			fmt.Fprintf(w, "hint: %s: %s\n", s.Job.Name, term.OneLine(s.Hint))
		}
	}
}

// causeLines returns a line for each failed entry that a record names, and one for the others. It
// leaves out a single one that the error of the record says already.
func causeLines(r *backup.Record) (lines []string) {
	if len(r.Causes) == 1 && transfer.Says(r.Error, r.Causes[0]) {
		return nil
	}
	for _, text := range r.Causes {
		lines = append(lines, term.OneLine(text))
	}
	if more := r.Failures - int64(len(r.Causes)); more > 0 && len(r.Causes) > 0 {
		lines = append(lines, fmt.Sprintf("%d more", more))
	}
	return lines
}

func conditionText(s *backup.Status) string {
	a := s.State.Active
	if v := s.State.Scrubbing; a == nil && v != nil {
		return fmt.Sprintf("verifying, %s of %s", units.PercentDone(v.Done, v.Files), v.Snapshot)
	}
	if a == nil || a.Now.Bytes == 0 || a.Now.Walking || s.Job.Command != "" {
		return string(s.Condition)
	}
	return fmt.Sprintf("%s, %s of %s", s.Condition, units.PercentDone(a.Now.Done, a.Now.Bytes), units.Bytes(a.Now.Bytes))
}

func goodText(s *backup.Status) string {
	switch {
	case s.State.Damage != nil && s.State.Damage.Newest > 0:
		return "damaged"
	case s.State.LastGood.IsZero():
		return "none"
	case s.Age < time.Minute:
		return "just now"
	}
	return units.Span(s.Age) + " old"
}

func lastText(s *backup.Status) string {
	r := s.State.Last
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s, %s in %s", outcomeText(r), units.Bytes(r.Written), units.Span(r.Duration()))
}

// outcomeText says how a run ended, which entries are missing, and what it healed.
func outcomeText(r *backup.Record) string {
	text := string(r.Outcome)
	if lacking := r.Lacking(); lacking != "" {
		text += " without " + lacking
	}
	if healing := r.Healing(); healing != "" {
		text += ", " + healing
	}
	return text
}

// timeText formats a time. It leaves out the parts of the date that are those of now.
func timeText(t time.Time, zone *time.Location, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.In(zone)
	switch d := t.Sub(now); {
	case d < 0:
		return "now"
	case d < 6*24*time.Hour:
		return t.Format("Mon 15:04")
	}
	return t.Format("2006-01-02 15:04")
}

func endText(s *backup.Status, now time.Time) string {
	f := s.Forecast
	if f == nil || f.End.IsZero() {
		return "-"
	}
	text := timeText(f.End, s.Job.Zone, now)
	switch {
	case f.Closes.IsZero():
	case f.Fits:
		text += ", within the window"
	default:
		text += ", past the window"
	}
	return text
}

type jsonStatus struct {
	Type      string            `json:"type"`
	Job       string            `json:"job"`
	Condition backup.Condition  `json:"condition"`
	Alarm     string            `json:"alarm,omitempty"`
	LastGood  time.Time         `json:"last_good,omitzero"`
	Age       float64           `json:"age_seconds"`
	MaxAge    float64           `json:"max_age_seconds,omitempty"`
	Next      time.Time         `json:"next,omitzero"`
	Active    *backup.Active    `json:"active,omitempty"`
	Last      *backup.Record    `json:"last,omitempty"`
	Scrub     *backup.Scrub     `json:"verified,omitempty"`
	Scrubbing *backup.Scrubbing `json:"verifying,omitempty"`
	Damage    *backup.Damage    `json:"damage,omitempty"`
	Warning   string            `json:"warning,omitempty"`
	Forecast  *jsonForecast     `json:"forecast,omitempty"`
	Hint      string            `json:"hint,omitempty"`
}

type jsonForecast struct {
	Start  time.Time `json:"start"`
	End    time.Time `json:"end,omitzero"`
	Closes time.Time `json:"window_closes,omitzero"`
	Fits   bool      `json:"fits"`
	Left   int64     `json:"bytes_left_then,omitempty"`
	Pauses int       `json:"pauses,omitempty"`
	Rate   float64   `json:"rate_bits_per_second"`
}

func jsonStatusOf(s *backup.Status) jsonStatus {
	line := jsonStatus{
		Type: "job", Job: s.Job.Name, Condition: s.Condition, Alarm: s.Alarm, LastGood: s.State.LastGood, Age: s.Age.Seconds(), MaxAge: s.Job.MaxAge.Seconds(),
		Next: s.Next, Active: s.State.Active, Last: s.State.Last, Scrub: s.State.Scrub, Hint: s.Hint,
		Scrubbing: s.State.Scrubbing, Damage: s.State.Damage, Warning: s.Warning,
	}
	if f := s.Forecast; f != nil {
		line.Forecast = &jsonForecast{Start: f.Start, End: f.End, Closes: f.Closes, Fits: f.Fits, Left: f.Left, Pauses: f.Pauses, Rate: f.Rate}
	}
	return line
}
