package units

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzParse: a quantity is what its number and unit say, and within its range.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0", "17520", "64KiB", "1.5MB", "2TB", "200mbit", "20MB/s", "10m", "1h30m", "14d", "2w", "0.01%", "0%",
		"9223372036854775807", "9223372036854775808", "0.000000000000000000001KiB",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for known, parse := range map[*map[string]int64]func(string) (int64, error){&SizeUnits: ParseSize, &RateUnits: ParseRate} {
			n, err := parse(s)
			if err != nil {
				continue
			}
			digits := strings.TrimRight(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/")
			unit := s[len(digits):]
			digits = strings.TrimSuffix(digits, " ")
			want, ok := new(big.Rat).SetString(digits)
			require.True(t, ok, "%q", s)
			want.Mul(want, new(big.Rat).SetInt64((*known)[unit]))
			require.Zero(t, want.Cmp(new(big.Rat).SetInt64(n)), "%q is %d", s, n)
		}
		if n, err := ParseRate(s); err == nil {
			again, err := ParseRate(ExactRate(n))
			require.NoError(t, err)
			require.Equal(t, n, again)
		}
		if d, err := ParseTime(s); err == nil {
			require.GreaterOrEqual(t, d, time.Duration(0), "%q", s)
		}
		if part, err := ParsePercent(s); err == nil {
			require.True(t, part >= 0 && part <= 1, "%q is %v", s, part)
		}
	})
}
