;; attack: An endless loop of an instance with more fuel than time.
;; expect: score -> deadline
;; limits: fuel_base=1000000000000 deadline_us=2000

;; in score:
(loop $again (br $again)) (unreachable)
