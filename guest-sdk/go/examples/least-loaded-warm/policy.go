package main

import "pointsman"

// Policy takes the worker with the fewest active requests, of equals the one with most of the prompt cached.
type Policy struct {
	cacheWeight float64
}

func (p *Policy) Manifest() pointsman.Manifest {
	return pointsman.Manifest{
		Name:        "least-loaded-warm",
		Version:     "0.1.0",
		Description: "Takes the worker with the fewest active requests, of equals the one with most of the prompt cached.",
	}
}

func (p *Policy) Parameters() []pointsman.Parameter {
	p.cacheWeight = 0.5
	return []pointsman.Parameter{{
		Name:        "cache_weight",
		Description: "Active requests that a wholly cached prompt weighs as much as; below 1 it only breaks ties.",
		Optional:    true,
		Into:        &p.cacheWeight,
		Min:         pointsman.Bound(0),
		Max:         pointsman.Bound(1),
	}}
}

func (p *Policy) ScoreReads() pointsman.Reads {
	return pointsman.Reads{
		Facts:   []string{"request.blocks"},
		Signals: []string{"load.active-requests", "cache.overlap-blocks"},
	}
}

func (p *Policy) Score(candidates *pointsman.Candidates, costs []float64) error {
	requests := candidates.Signal("load.active-requests")
	cached := candidates.Signal("cache.overlap-blocks")
	blocks := max(candidates.Fact("request.blocks"), 1)
	for row := range costs {
		costs[row] = requests[row] - p.cacheWeight*cached[row]/blocks
	}
	return nil
}

func main() {}
