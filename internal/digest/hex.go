package digest

import "encoding/hex"

// Hex returns a digest as b3sum prints it.
func Hex(d [32]byte) string { return hex.EncodeToString(d[:]) }
