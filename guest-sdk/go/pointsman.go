// Package pointsman is for routing policies in Go.
//
// A policy is the type Policy of package main: a pointer to it implements Definition, and for each stage that
// pointsman.yaml names Filterer, Scorer, Picker or Classifier. Each guest has one, which lives from call to call.
// An error is one sentence for the operator's log; a panic becomes one.
package pointsman

import "fmt"

// Manifest says what a policy is.
type Manifest struct {
	Name string
	// Version is by semantic versioning.
	Version string
	// Description is one sentence.
	Description string
	// ExclusiveAffinity narrows the candidates to the affinity target while that is eligible.
	ExclusiveAffinity bool
	// TickMs is how often OnTick is called, at least 10; 0 for never.
	TickMs uint32
}

// Definition is what every policy has.
type Definition interface {
	Manifest() Manifest
	// Parameters names the policy's parameters and where each is read into.
	Parameters() []Parameter
}

// Configurer is a policy that is told where it runs, once, after its parameters were read.
type Configurer interface {
	Configure(Setup) error
}

// Filterer is a policy with the stage filter.
type Filterer interface {
	FilterReads() Reads
	// Filter says for each row whether the worker may serve the request; all of keep is true at first.
	Filter(candidates *Candidates, keep []bool) error
}

// Scorer is a policy with the stage score.
type Scorer interface {
	ScoreReads() Reads
	// Score gives each row a cost, lower is better; all are 0 at first.
	Score(candidates *Candidates, costs []float64) error
}

// Picker is a policy with the stage pick.
type Picker interface {
	PickReads() Reads
	// Pick answers the chosen row.
	Pick(candidates *Candidates) (int, error)
}

// Reads names what a stage reads, by the names of docs/contract.md. It gets that and nothing else.
type Reads struct {
	Facts, Texts, Signals []string
	// Workers asks for the workers' numbers. A classifier has neither these nor signals.
	Workers bool
}

// Setup is what a guest knows from its start.
type Setup struct {
	Model, RoutingGroup string
	// Role is aggregated, prefill, decode or encode.
	Role string
	// BlockSize is the tokens of a KV block.
	BlockSize uint32
	// Seed is that of this guest's randomness.
	Seed   uint32
	Router Router
}

// Router has the router's settings, which a policy may take as defaults.
type Router struct {
	OverlapScoreCredit        float64
	OverlapScoreCreditDecay   float64
	PrefillLoadScale          float64
	DecodeActiveRequestWeight float64
	HostCacheHitWeight        float64
	DiskCacheHitWeight        float64
	SharedCacheMultiplier     float64
	RouterTemperature         float64
	ConditionalDisaggregation bool
}

// Request is what a stage reads of the request; valid during the call.
type Request struct {
	stage   string
	reads   Reads
	numbers []float64
	texts   []*string
}

// Fact is one that the stage reads; NaN where it is missing.
func (r *Request) Fact(name string) float64 {
	return r.numbers[r.place("Facts", r.reads.Facts, name)]
}

// Text is one that the stage reads; nil where it is missing.
func (r *Request) Text(name string) *string {
	return r.texts[r.place("Texts", r.reads.Texts, name)]
}

func (r *Request) place(list string, names []string, name string) int {
	for place, known := range names {
		if known == name {
			return place
		}
	}
	panic(mistake(fmt.Sprintf("%s does not read `%s`; name it under its %s", r.stage, name, list)))
}

// mistake is a panic whose words say all.
type mistake string

// Candidates is the request and the candidate workers; valid during the call.
type Candidates struct {
	Request
	// Rows is how many candidates there are, at least 1.
	Rows int
	// Workers has a number for each row that stands for its worker while that lives; nil unless the stage reads it.
	Workers []uint32
}

// Signal has a number for each row, NaN where it is missing: a part of the list that came in.
func (c *Candidates) Signal(name string) []float64 {
	from := len(c.reads.Facts) + c.place("Signals", c.reads.Signals, name)*c.Rows
	return c.numbers[from : from+c.Rows : from+c.Rows]
}
