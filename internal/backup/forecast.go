package backup

import (
	"fmt"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

// Estimate is what a run is expected to take, based on previous runs.
type Estimate struct {
	Known    bool
	Bytes    int64         // to be written
	Rate     float64       // bit/s that the path and both hosts allow, without a timetable
	Overhead time.Duration // for looking for changes, and for hooks
}

// ForecastFrom is how far back forecasts look into the history of a job.
const ForecastFrom = 92 * 24 * time.Hour

// estimateRuns is the number of runs that an estimate is based on.
const estimateRuns = 7

// estimate uses the median of the last good runs, so that one unusual night does not matter.
func estimate(history []Record) (e Estimate) {
	var bytes, rates, overheads []float64
	for _, r := range slices.Backward(history) {
		if r.Outcome != Good || len(bytes) == estimateRuns {
			continue
		}
		bytes = append(bytes, float64(r.Written))
		rate := max(r.Goodput, r.Peak)
		if rate <= 0 {
			overheads = append(overheads, r.Working)
			continue
		}
		// The mean rate is better. The peak is only used if the run wrote little and spent most of
		// its time looking for changes.
		if writing := float64(r.Written) * 8 / rate; writing > r.Working/2 {
			rates = append(rates, r.Goodput)
			overheads = append(overheads, 0)
		} else {
			rates = append(rates, rate)
			overheads = append(overheads, max(0, r.Working-writing))
		}
	}
	if len(bytes) == 0 {
		return e
	}
	return Estimate{Known: true, Bytes: int64(median(bytes)), Rate: median(rates), Overhead: time.Duration(median(overheads) * float64(time.Second))}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 0 {
		return (values[mid-1] + values[mid]) / 2
	}
	return values[mid]
}

// Forecast is when a run is expected to end.
type Forecast struct {
	Start   time.Time
	End     time.Time // zero if it is not known
	Pauses  int       // number of pauses before End, at the ends of windows
	Closes  time.Time // when the window of its start closes; zero if that does not matter
	Fits    bool      // the run ends before Closes
	Left    int64     // bytes that are not written at Closes
	Rate    float64   // bit/s that the forecast is based on, without the timetable
	Limited bool      // the timetable is slower than Rate for some of the time
}

// forecastSteps limits how many changes of window and timetable the forecast follows: at least some
// months.
const forecastSteps = 1500

// forecast computes the course of a run from start. The run still writes this many bytes, at rate
// where the timetable allows it, and needs the overhead besides. It pauses while its window is
// closed.
func forecast(j *Job, start time.Time, bytes int64, rate float64, overhead time.Duration) (f Forecast) {
	f = Forecast{Start: start, Rate: rate, Fits: true}
	if rate <= 0 && bytes > 0 {
		return f
	}
	limited := j.Overrun != Continue // by the window
	always := j.Window.Always()
	left := float64(bytes) * 8 // bits
	now := start
	for range forecastSteps {
		open := j.Window.Open(now)
		if !always && f.Closes.IsZero() && open {
			f.Closes = j.Window.Change(now)
		}
		next := j.Rate.Change(now)
		if change := j.Window.Change(now); next.IsZero() || !change.IsZero() && change.Before(next) {
			next = change
		}
		if !open && limited {
			if f.Pauses++; next.IsZero() {
				return f
			}
			now = j.Window.Opening(now)
			continue
		}
		speed := rate
		if most := j.Rate.Rate(now); most > 0 && float64(most) < rate {
			speed, f.Limited = float64(most), true
		}
		end := now.Add(overhead)
		if left > 0 {
			end = end.Add(seconds(left / speed))
		}
		if next.IsZero() || !end.After(next) {
			f.End = end
			break
		}
		span := next.Sub(now)
		idle := min(span, overhead)
		overhead -= idle
		left = max(0, left-speed*(span-idle).Seconds())
		now = next
		if now.Equal(f.Closes) {
			f.Left = int64(left / 8)
		}
	}
	f.Fits = !f.End.IsZero() && (f.Closes.IsZero() || !f.End.After(f.Closes))
	return f
}

// seconds converts seconds to a duration of at most a century.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, (100*365*24*time.Hour).Seconds()) * float64(time.Second))
}

// ForecastActive computes when the running or paused run ends. The history contains only this job.
func ForecastActive(j *Job, a *Active, history []Record, now time.Time) (Forecast, bool) {
	e := estimate(history)
	left, ok := leftOf(j, a, &e)
	if !ok {
		return Forecast{}, false
	}
	rate := meanRate(a)
	if rate <= 0 {
		rate = max(e.Rate, a.Now.Goodput)
	}
	if limit := float64(j.Rate.Rate(a.Now.At)); limit > 0 && rate > 0.8*limit { // the timetable limits now, and the path may carry more later
		rate = max(rate, e.Rate, limit)
	}
	if rate <= 0 {
		return Forecast{}, false
	}
	start := now
	if a.Leg.IsZero() {
		start = j.Window.Opening(now)
	}
	return forecast(j, start, left, rate, 0), true
}

// leftOf estimates how much a run still has to write, and reports whether an estimate is possible.
func leftOf(j *Job, a *Active, e *Estimate) (int64, bool) {
	written := a.Written + a.Now.Written
	usual := e.Bytes - written
	if a.Now.Walking || a.Now.Bytes == 0 || j.Command != "" { // the total is not known
		return max(0, usual), e.Known
	}
	rest := a.Now.Bytes - a.Now.Done
	if e.Known && usual > 0 {
		return max(0, min(rest, usual)), true
	}
	if a.Now.Done > 0 { // the same share of the rest has changed as of what is done
		rest = int64(float64(rest) * min(1, float64(written)/float64(a.Now.Done)))
	}
	return max(0, rest), true
}

// meanRate is the rate of a run in bit/s without pauses and waiting, or 0 if the run is too short
// to tell.
func meanRate(a *Active) float64 {
	written, took := a.Written, a.Working
	if !a.Leg.IsZero() && a.Now.At.After(a.Leg) {
		written += a.Now.Written
		took += a.Now.At.Sub(a.Leg).Seconds()
	}
	if took < 2 || written <= 0 {
		return 0
	}
	return float64(written) * 8 / took
}

// ForecastNext computes when the next run ends.
func ForecastNext(j *Job, history []Record, start time.Time) (Forecast, bool) {
	e := estimate(history)
	if !e.Known || start.IsZero() {
		return Forecast{}, false
	}
	f := forecast(j, start, e.Bytes, e.Rate, e.Overhead)
	return f, !f.End.IsZero()
}

// Hint says what would make a run fit its window, or "" if it fits.
func (f *Forecast) Hint(j *Job, limiter, remedy string) string {
	if f.Fits || f.Closes.IsZero() {
		return ""
	}
	what := "it goes on after it"
	switch j.Overrun {
	case Pause:
		what = "it pauses, and ends " + f.End.In(j.Zone).Format("Mon 15:04")
		if f.End.IsZero() {
			what = "it pauses"
		}
	case Fail:
		what = "it will fail"
	case Continue:
	}
	text := fmt.Sprintf("it does not end before the window closes at %s: %s", f.Closes.In(j.Zone).Format("Mon 15:04"), what)
	if span := f.Closes.Sub(f.Start).Seconds(); f.Left > 0 && span > 0 {
		text += fmt.Sprintf("; %s are left then", units.Bytes(f.Left))
	}
	if f.Limited {
		return text + "; its timetable is slower than the path, " + units.Rate(f.Rate)
	}
	if limiter != "" {
		text += "; the limit is " + limiter
	}
	if remedy != "" {
		text += ": " + remedy
	}
	return text
}
