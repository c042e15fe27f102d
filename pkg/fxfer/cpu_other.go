//go:build !unix

package fxfer

import "time"

func processTime() time.Duration { return 0 }
