package identity

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usesFile counts the uses of capabilities, so that none counts more often after a restart.
const usesFile = "capabilities"

const usesHeader = "# Uses of capabilities that have not expired, one a line: user nonce uses until\n"

// maxCapabilities bounds the capabilities of one user that a server remembers.
const maxCapabilities = 1024

// use is one line of the file capabilities.
type use struct {
	user  string // its pin
	nonce string // 32 hexadecimal digits
	count uint32
	until time.Time
}

// Spend counts one use of a capability, durably and across processes. It fails with
// ErrCapabilityUsed once there were as many as it allows, and with ErrCapabilityMany if its user has
// 1024 others here that have not expired. It checks nothing else.
func (s *Store) Spend(c *Capability) error {
	now := s.now()
	return s.update(usesFile, func(text string) (string, error) {
		list, err := countUse(parseUses(text, now), c)
		if err != nil {
			return "", err
		}
		return formatUses(list), nil
	})
}

// countUse counts a use of a capability in the list.
func countUse(list []use, c *Capability) ([]use, error) {
	user, nonce, others := string(c.User), hex.EncodeToString(c.Nonce[:]), 0
	for i := range list {
		x := &list[i]
		switch {
		case x.user != user:
		case x.nonce != nonce:
			others++
		case x.count >= c.Uses:
			return nil, ErrCapabilityUsed
		default:
			x.count++
			return list, nil
		}
	}
	if others >= maxCapabilities {
		return nil, ErrCapabilityMany
	}
	return append(list, use{user, nonce, 1, c.Until}), nil
}

// parseUses reads the text of the file, without what expired an hour ago. Until then a clock may be
// set back.
func parseUses(text string, now time.Time) (list []use) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 4 || strings.HasPrefix(line, "#") {
			continue
		}
		count, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		until, err := time.Parse(time.RFC3339, fields[3])
		if err != nil || !now.Before(until.Add(rememberFor)) {
			continue
		}
		list = append(list, use{fields[0], fields[1], uint32(count), until})
	}
	return list
}

func formatUses(list []use) string {
	var b strings.Builder
	b.WriteString(usesHeader)
	for _, x := range list {
		fmt.Fprintf(&b, "%s %s %d %s\n", x.user, x.nonce, x.count, x.until.UTC().Format(time.RFC3339))
	}
	return b.String()
}
