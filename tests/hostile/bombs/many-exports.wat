;; attack: 50,000 exports of one function.
;; expect: load -> structure (exports)

;; in core:
;; repeat 50000: (export "e#" (func $bump))
