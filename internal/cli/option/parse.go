package option

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// ParseAutoCount is ParseCount, but also accepts auto, which is 0.
func ParseAutoCount(s string) (int, error) {
	if s == Auto {
		return 0, nil
	}
	return ParseCount(s)
}

// ParseCount reads a number of at least 1.
func ParseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number from 1 up", s)
	}
	return int(n), nil
}

// maxSockBuf is the largest buffer to ask Linux for: Linux doubles the size and keeps it in an int.
const maxSockBuf = 1<<30 - 1

// ParseSockBuf reads the size of socket buffers. auto is 0.
func ParseSockBuf(s string) (int, error) {
	if s == Auto {
		return 0, nil
	}
	n, err := units.ParseSize(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or auto", err)
	case n == 0 || n > maxSockBuf:
		return 0, fmt.Errorf("%q is not from 1 byte to less than 1 GiB", s)
	}
	return int(n), nil
}

// congestionForm matches the names that the kernel uses. They have at most 15 bytes
// (TCP_CA_NAME_MAX in linux/tcp.h).
var congestionForm = regexp.MustCompile(`^[a-z0-9_-]{1,15}$`)

// ParseCongestion reads the name of a congestion control. auto is "".
func ParseCongestion(s string) (string, error) {
	switch {
	case s == Auto:
		return "", nil
	case !congestionForm.MatchString(s):
		return "", fmt.Errorf("%q is not the name of a congestion control such as bbr or cubic, nor auto", s)
	}
	return s, nil
}

// ParseLimit reads a rate in bit/s. "none" is 0.
func ParseLimit(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := units.ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("%w, or none", err)
	}
	return n, nil
}

// parseFolder reads the name of an existing folder.
func parseFolder(s string) (string, error) {
	info, err := os.Stat(s)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", s)
	}
	return s, nil
}

// ParseNewer reads a point in time, or an age such as 7d.
func ParseNewer(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	ago := strings.TrimSuffix(s, " ago")
	if days, ok := units.ParseDays(ago); ok {
		return now.AddDate(0, 0, -days), nil
	}
	if d, err := time.ParseDuration(ago); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-21, 2026-11-21 14:30, 2026-11-21T14:30:00Z, 36h or 7d", s)
}

// ParsePriority reads a priority. "auto" is "".
func ParsePriority(s string) (fxfer.Priority, error) {
	switch p := fxfer.Priority(s); p {
	case fxfer.PriorityLow, fxfer.PriorityNormal, fxfer.PriorityHigh:
		return p, nil
	case Auto:
		return "", nil
	}
	return "", fmt.Errorf("%q is none of low, normal, high and auto", s)
}

// ParseDeadline reads a time of day that is next, a point in time, or a time from now such as 3h.
// "none" is the zero Time.
func ParseDeadline(s string, now time.Time) (time.Time, error) {
	if s == "none" {
		return time.Time{}, nil
	}
	if t, err := time.ParseInLocation("15:04", s, now.Location()); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if !at.After(now) {
			at = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), 0, 0, now.Location())
		}
		return at, nil
	}
	if d, err := units.ParseTime(s); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", time.DateTime} {
		t, err := time.ParseInLocation(layout, s, now.Location())
		switch {
		case err != nil:
			continue
		case !t.After(now):
			return time.Time{}, fmt.Errorf("%s has passed", s)
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 06:00, 3h, 2026-11-21 06:00 or 2026-11-21T06:00:00Z, nor none", s)
}

// ParseSettle reads for how long a complete file has not changed.
func ParseSettle(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	if err == nil && d < outbox.MinSettle {
		err = fmt.Errorf("%v is too short: the time stamps of disks need %v", d, outbox.MinSettle)
	}
	return d, err
}

// ParseThen reads what becomes of a local file that is there. absolute makes a path absolute.
func ParseThen(s string, absolute func(string) (string, error)) (outbox.Then, error) {
	to, moves := strings.CutPrefix(s, "move:")
	switch {
	case s == "keep":
		return outbox.Then{}, nil
	case s == "delete":
		return outbox.Then{Delete: true}, nil
	case moves && to != "":
		abs, err := absolute(to)
		return outbox.Then{MoveTo: abs}, err
	}
	return outbox.Then{}, fmt.Errorf("%q is none of keep, delete and move:FOLDER", s)
}

// ParseFile reads the name of a file on this host.
func ParseFile(s string) (string, error) {
	if s == "" {
		return "", errors.New("the name is empty")
	}
	return s, nil
}

// ParseReadable reads the name of a file on this host that fxfer is to read.
func ParseReadable(s string) (string, error) {
	if _, err := ParseFile(s); err != nil {
		return "", err
	}
	f, err := os.Open(s)
	if err != nil {
		return "", err
	}
	return s, f.Close()
}

// ParseOutput reads the name of a file on this host that fxfer writes.
func ParseOutput(s string) (string, error) {
	if s == "-" {
		return "", errors.New("- is not a file: /dev/stdout is standard output, and ./- a file of that name")
	}
	return ParseFile(s)
}
