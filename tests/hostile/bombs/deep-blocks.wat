;; attack: Blocks 20,000 deep.
;; expect: load -> structure

;; in core:
(func (export "bomb")
;; repeat 20000: block
;; repeat 20000: end
)
