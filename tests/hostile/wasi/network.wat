;; attack: Asks for the network.
;; expect: score -> trap
;; imports: wasi

;; in score:
(drop (call $network)) (call $list (local.get $numbers) (local.get $count))
