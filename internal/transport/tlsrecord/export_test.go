package tlsrecord

import "testing"

// SetKeyRecords changes how many records one key seals until the test ends, which must not be a
// parallel one.
func SetKeyRecords(t *testing.T, n int64) {
	before := keyRecords
	keyRecords = n
	t.Cleanup(func() { keyRecords = before })
}
