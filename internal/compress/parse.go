package compress

import (
	"fmt"
	"runtime"
)

// Parse returns the Meter for a way to compress: "auto" where that is faster, "zstd" always. It is
// nil for "none" and "".
func Parse(way string) (*Meter, error) {
	switch way {
	case "", "none":
		return nil, nil
	case "auto":
		return NewMeter(runtime.GOMAXPROCS(0)), nil
	case "zstd":
		return Always(), nil
	}
	return nil, fmt.Errorf("there is no compression %q", way)
}
