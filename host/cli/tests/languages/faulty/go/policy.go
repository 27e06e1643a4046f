package main

import (
	"errors"
	"fmt"

	"pointsman"
)

// Policy errs as it is told.
type Policy struct{ fault string }

func (p *Policy) Manifest() pointsman.Manifest {
	return pointsman.Manifest{Name: "faulty", Version: "0.1.0", Description: "Errs as it is told."}
}

func (p *Policy) Parameters() []pointsman.Parameter {
	return []pointsman.Parameter{{
		Name:  "fault",
		Into:  &p.fault,
		Names: []string{"exception", "error", "unknown", "unread", "loop", "memory", "print"},
	}}
}

func (p *Policy) ScoreReads() pointsman.Reads {
	if p.fault == "unknown" {
		return pointsman.Reads{Signals: []string{"load.requests"}}
	}
	return pointsman.Reads{Signals: []string{"load.active-requests"}}
}

func (p *Policy) Score(candidates *pointsman.Candidates, costs []float64) error {
	switch p.fault {
	case "exception":
		costs[len(costs)] = 1
	case "error":
		return errors.New("there is no way")
	case "unread":
		candidates.Signal("load.decode-blocks")
	case "loop":
		for row := 0; ; row = 0 {
			costs[row]++
		}
	case "memory":
		var all [][]byte
		for {
			all = append(all, make([]byte, 1<<20))
		}
	case "print":
		fmt.Println("seen", candidates.Rows)
	}
	return nil
}

func main() {}
