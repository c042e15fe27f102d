package session

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const gb = 1e9

// course runs a transfer of so many bytes with a deadline after so long, in steps of 200 ms. speed
// is its rate in bit/s at a time and a priority. It returns the changes, and when the transfer ended.
func course(size float64, within time.Duration, speed func(at time.Duration, p Priority) float64) (changes []PriorityChange, end time.Duration) {
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	d := NewDeadline(start.Add(within), start)
	moved := 0.0
	const step = time.Second
	for ; moved < size && end < 10*within; end += step {
		moved += speed(end, d.Priority()) / 8 * step.Seconds()
		o := Outlook{At: start.Add(end), Moved: int64(moved), Left: max(0, int64(size-moved))}
		if c, changed := d.Update(o); changed {
			changes = append(changes, c)
		}
	}
	return changes, end
}

// steady is a path with so many bit/s at each priority.
func steady(low, normal, high float64) func(time.Duration, Priority) float64 {
	return func(_ time.Duration, p Priority) float64 {
		return map[Priority]float64{PriorityLow: low, PriorityNormal: normal, PriorityHigh: high}[p]
	}
}

func TestDeadline(t *testing.T) {
	const within = 6 * time.Hour
	for name, test := range map[string]struct {
		size  float64
		speed func(time.Duration, Priority) float64
		want  []Priority // from low; the last ones may be trials of a lower one
		late  bool
	}{
		"low will do":           {100 * gb, steady(50e6, 100e6, 200e6), nil, false},
		"low would just not do": {130 * gb, steady(50e6, 100e6, 200e6), []Priority{PriorityNormal, PriorityLow}, false},
		"normal will do":        {240 * gb, steady(5e6, 100e6, 200e6), []Priority{PriorityNormal, PriorityLow, PriorityNormal}, false},
		"only high will do":     {400 * gb, steady(5e6, 50e6, 200e6), []Priority{PriorityNormal, PriorityHigh, PriorityNormal, PriorityHigh, PriorityNormal, PriorityHigh}, false},
		"nothing will do":       {4000 * gb, steady(5e6, 50e6, 200e6), []Priority{PriorityNormal, PriorityHigh}, true},
		"nothing moves at low":  {200 * gb, steady(0, 100e6, 200e6), []Priority{PriorityNormal, PriorityLow, PriorityNormal, PriorityLow, PriorityNormal}, false},
		"others come after two hours": {200 * gb, func(at time.Duration, p Priority) float64 {
			if p == PriorityLow && at > 2*time.Hour {
				return 1e6
			}
			return steady(90e6, 90e6, 100e6)(at, p)
		}, []Priority{PriorityNormal, PriorityLow, PriorityNormal, PriorityLow, PriorityNormal}, false},
	} {
		t.Run(name, func(t *testing.T) {
			changes, end := course(test.size, within, test.speed)
			var got []Priority
			for _, c := range changes {
				t.Log(c)
				got = append(got, c.Priority)
			}
			require.Equal(t, test.want, got)
			require.Equal(t, test.late, end > within, "%v", end)
		})
	}
}

// A deadline in a minute is decided upon in seconds.
func TestDeadlineSoon(t *testing.T) {
	changes, end := course(0.4*gb, time.Minute, steady(5e6, 90e6, 100e6))
	require.Equal(t, PriorityNormal, changes[0].Priority)
	require.LessOrEqual(t, len(changes), 3)
	require.Less(t, end, time.Minute)
	changes, end = course(0.4*gb, time.Minute, steady(90e6, 90e6, 100e6))
	require.Empty(t, changes)
	require.Less(t, end, time.Minute)
}

// Streams complete their blocks at the same time. What has arrived of them counts before.
func TestDeadlineBlocks(t *testing.T) {
	const size, round, rate = 80_000_000, 16 << 20, 22e6 / 8
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	d := NewDeadline(start.Add(time.Minute), start)
	carried := int64(0)
	for at := time.Second; carried < size; at += time.Second {
		carried = int64(at.Seconds() * rate)
		complete := carried / round * round
		o := Outlook{At: start.Add(at), Moved: complete, Left: size - complete}.Ahead(carried-complete, 16)
		require.Equal(t, max(0, size-carried), o.Left)
		c, changed := d.Update(o)
		require.False(t, changed, "%v", c)
	}
	o := Outlook{Left: 100 << 20}.Ahead(50<<20, 16)
	require.EqualValues(t, 84<<20, o.Left, "much was sent in vain")
	require.Equal(t, Outlook{Moved: 5, Left: 5}, Outlook{Moved: 5, Left: 5}.Ahead(-1, 16))
}

// A rate that swings by half does not make the priority swing. Also at half of its rate, low will do.
func TestDeadlineCalm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	factor := 1.0
	swing := func(mean func(time.Duration, Priority) float64) func(time.Duration, Priority) float64 {
		return func(at time.Duration, p Priority) float64 {
			if random.IntN(50) == 0 {
				factor = 0.5 + random.Float64()
			}
			return factor * mean(at, p)
		}
	}
	changes, end := course(70*gb, 6*time.Hour, swing(steady(60e6, 90e6, 100e6)))
	require.Empty(t, changes)
	require.Less(t, end, 6*time.Hour)
	changes, end = course(190*gb, 6*time.Hour, swing(steady(10e6, 90e6, 100e6)))
	require.LessOrEqual(t, len(changes), 8)
	require.Less(t, end, 6*time.Hour)
}

func TestDeadlinePassed(t *testing.T) {
	start := time.Date(2026, 11, 20, 6, 0, 0, 0, time.UTC)
	d := NewDeadline(start, start.Add(-time.Hour))
	c, changed := d.Update(Outlook{At: start, Left: 1e9})
	require.True(t, changed)
	require.Equal(t, PriorityHigh, c.Priority)
	require.Equal(t, "raised to high at 06:00: 1.00 GB left, and the deadline 06:00 has passed", c.String())
	_, changed = d.Update(Outlook{At: start.Add(time.Second), Left: 1e9})
	require.False(t, changed)
	d = NewDeadline(start, start.Add(-time.Hour))
	_, changed = d.Update(Outlook{At: start, Left: 0})
	require.False(t, changed, "it is done")
}

func TestPriorityChangeText(t *testing.T) {
	at := time.Date(2026, 11, 20, 4, 10, 0, 0, time.UTC)
	c := PriorityChange{
		At: at, Priority: PriorityNormal, Raised: true, Left: 120e9, Rate: 90e6,
		Needs: needed(120e9, 90e6), Deadline: at.Add(110 * time.Minute),
	}
	require.Equal(t, "raised to normal at 04:10: 120 GB left, 2 h 58 min at 90.0 Mbit/s, deadline 06:00", c.String())
	c.Raised, c.Priority = false, PriorityLow
	require.Contains(t, c.String(), "lowered to low at 04:10")
	c.Rate = 0
	require.Contains(t, c.String(), "120 GB left, nothing moves, deadline 06:00")
	c.Deadline = c.Deadline.Add(7 * time.Second)
	require.Contains(t, c.String(), "at 04:10:00: 120 GB left, nothing moves, deadline 06:00:07")
}
