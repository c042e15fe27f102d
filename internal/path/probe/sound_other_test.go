//go:build !linux

package probe

const roleEnv = "FXFER_PROBE_TEST_ROLE"

func play() int { return 1 }
