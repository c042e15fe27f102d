// Package verdict shows what held a transfer back.
package verdict

import (
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Name returns a limiter with its host.
func Name(x *fxfer.Limit) string {
	if x.Host == "" {
		return string(x.Limiter)
	}
	return string(x.Limiter) + " on " + x.Host
}

// Expected returns what a remedy should bring, "" if that is not known.
func Expected(r *fxfer.Remedy) string {
	if r.Expect == 0 {
		return ""
	}
	return ": expect " + units.Rate(r.Expect)
}
