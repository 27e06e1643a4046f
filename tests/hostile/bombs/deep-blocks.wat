;; attack: Blocks 20,000 deep.
;; expect: load -> structure (nesting)

;; in core:
(func (export "bomb")
;; repeat 20000: block
;; repeat 20000: end
)
