//go:build wasip1 && pointsman_pick

package pointsman

import "fmt"

var toPick Candidates

func init() {
	pickReads = func() Reads {
		toPick.stage, toPick.reads = "Pick", guest.(Picker).PickReads()
		return toPick.reads
	}
}

//go:wasmexport pointsman:policy/worker-picker@0.1.0#pick
func pick(rows uint32, n pointer, nl uint32, hasWorkers uint32, w pointer, wl uint32, hasTexts uint32, t pointer, tl uint32) pointer {
	begin()
	defer end()
	toPick.given(rows, list{n, nl}, list{w, wl}, list{t, tl})
	var row int
	err := guarded("Pick", func() (err error) {
		row, err = guest.(Picker).Pick(&toPick)
		if err == nil && row < 0 {
			err = fmt.Errorf("Pick answered %d; answer the number of a row", row)
		}
		return err
	})
	return answered(list{start: pointer(row)}, err)
}
