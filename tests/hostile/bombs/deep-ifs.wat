;; attack: Branches 5,000 deep, each of which may or may not be taken.
;; expect: load -> structure (nesting)

;; in core:
(func (export "bomb") (param i32)
;; repeat 5000: local.get 0 if
;; repeat 5000: else end
)
