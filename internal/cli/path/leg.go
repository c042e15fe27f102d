package path

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/units"
)

// legForm is the hint against a wrong --leg.
const legForm = "for example: --leg 20ms,100mbit,loss=0.1%,initcwnd=10,initrwnd=44,window=64KiB, or --leg leo with a name from `fxfer lab lines`"

const (
	maxLegs    = lab.MaxLegs
	maxInitial = 1000 // segments; a route takes more, but nobody has them
)

// parseLegs reads the values of --leg, in the order in which data goes.
func parseLegs(values []string) ([]lab.Leg, error) {
	if len(values) > maxLegs {
		return nil, exit.Usage("", "--leg: %d legs are too many: at most %d", len(values), maxLegs)
	}
	legs := make([]lab.Leg, len(values))
	for i, s := range values {
		var err error
		if legs[i], err = parseLeg(s, i == len(values)-1); err != nil {
			return nil, exit.Usage(legForm, "--leg %s: %w", s, err)
		}
	}
	return legs, nil
}

// parseLeg reads a leg: the name of a line or nothing, then a round-trip time, a rate, and windows.
// The customer of a line is at the end of the last leg, and at the beginning of other legs.
func parseLeg(s string, last bool) (l lab.Leg, err error) {
	l.Link.MTU = 1500
	fields := strings.Split(s, ",")
	if preset, err := lab.PresetLink(fields[0]); err == nil {
		l.Link, fields = preset, fields[1:]
		if last && l.Link.RateBack != 0 {
			l.Link.Rate, l.Link.RateBack = l.Link.RateBack, l.Link.Rate
		}
	}
	for _, f := range fields {
		if err := legField(&l, f); err != nil {
			return l, err
		}
	}
	switch {
	case l.Link.Rate == 0:
		return l, errors.New("a rate such as 100mbit is missing")
	case l.Link.RTT == 0:
		return l, errors.New("a round-trip time such as 20ms is missing")
	}
	return l, l.Link.Check()
}

func legField(l *lab.Leg, f string) (err error) {
	switch name, value, named := strings.Cut(f, "="); {
	case name == "loss":
		l.Link.Loss, err = units.ParsePercent(value)
	case name == "initcwnd":
		l.InitCwnd, err = parseInitial(value)
	case name == "initrwnd":
		l.InitRwnd, err = parseInitial(value)
	case name == "window":
		l.Window, err = parseWindow(value)
	case named:
		return fmt.Errorf("%q is none of loss, initcwnd, initrwnd and window", name)
	default:
		if rtt, err := time.ParseDuration(f); err == nil {
			l.Link.RTT = rtt
			return nil
		}
		rate, err := units.ParseRate(f)
		if err != nil {
			return fmt.Errorf("%q is neither a round-trip time such as 20ms nor a rate such as 100mbit", f)
		}
		l.Link.Rate, l.Link.RateBack = rate, 0
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	return nil
}

func parseInitial(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxInitial {
		return 0, fmt.Errorf("%q is not a number of segments from 1 to %d", s, maxInitial)
	}
	return n, nil
}
