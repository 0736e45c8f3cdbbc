#!/usr/bin/env bash
# All that the page has of 2026-11-17 and what it lists as not reached, on one GPU, one stage after the other: side by
# side they starve each other.
#
#   DATA=folder OUT=folder [FASHION=folder] bash papers/ats/all.sh        from the repository root
#
# DATA: CIFAR-100, and for table 8 imagenet128_500.zip and utkface200_2000.zip, without which those rows are left out.
# FASHION: Fashion-MNIST, for table 9; left out unless given.
# Makes, in OUT: models/ (weights, to be kept: all else can be made again from them) and models.jsonl (accuracies),
# correlation-MODEL.json (figure 5), steps-N.jsonl, sweeps.jsonl (figure 11, tables 7 and 10), search-race-adaptive.json
# and known-adaptive.jsonl ([Re] ATS, tables 1 and 2, for the policy found), table8.jsonl, transfer.jsonl (table 9);
# log/ has what each stage said, stages.jsonl how it ended and after how many seconds.
# A stage whose file is there is left out, so the same command goes on where it was ended; lines of a stage that was
# ended in the middle are kept as NAME.ended.
# Seconds on an H200 of its own, 2026-11-17: models-semi-resnet20-4 35, models-stages-resnet20-4 56, search 78,
# known 166, correlation-lenet5 93, steps-7800 34, steps-10800 40, steps-13800 42, sweeps 153; table8 was ended after
# MobileNetV2 (6 a row). The models of LeNet-5 are of a CPU, 3 to 11 minutes each, and so is all of Fashion-MNIST, the
# attack with fewer steps. Never run there: steps-4800 (sweeps has its cell), the rest of table8,
# models-plain-resnet20-4, transfer, correlation-resnet20-4.
# ONLY="NAME ...": these stages alone.
# PY, DEVICE (cuda), PRECISION (tf32), LIMIT (seconds of a stage, 0: none); SIZE=tiny DEVICE=cpu tries every stage.
set -u
: "${DATA:?folder with CIFAR-100}" "${OUT:?folder for results}"
PY=${PY:-python3} DEVICE=${DEVICE:-cuda} PRECISION=${PRECISION:-tf32} LIMIT=${LIMIT:-0} ONLY=${ONLY:-} FASHION=${FASHION:-}
[ "$DEVICE" = cpu ] && PRECISION=float32
export PYTHONPATH="$PWD/src:$PWD/papers/ats${PYTHONPATH:+:$PYTHONPATH}"
HERE=papers/ats MODELS=$OUT/models ON=(--device "$DEVICE" --precision "$PRECISION")
mkdir -p "$OUT/log" "$MODELS/fashion"

BIG=resnet20-4 SMALL_EPOCHS=20 BIG_EPOCHS=10 FASHION_EPOCHS=10
FIGURE5=(--policies 100 --images 50 --scored 50 --tv 1e-2) SMALL_STEPS=300 BIG_STEPS=200 SMALL_AT_ONCE=1000 BIG_AT_ONCE=250
PICTURES=48 STEPS=4800 COUNTS=(4800 7800 10800 13800)
SEARCH=(--candidates 1500 --images 100) KNOWN=(--images 50 --steps 1000 --restarts 5) TABLE8=(--images 8 --steps 1000)
CELLS=(mobilenet vit)
[ -f "$DATA/imagenet128_500.zip" ] && CELLS+=(imagenet)
[ -f "$DATA/utkface200_2000.zip" ] && CELLS+=(faces)
if [ "${SIZE:-full}" = tiny ]; then
    BIG=convnet8 SMALL_EPOCHS=4 BIG_EPOCHS=1 FASHION_EPOCHS=1
    FIGURE5=(--policies 5 --images 3 --scored 3 --tv 1e-2) SMALL_STEPS=2 BIG_STEPS=2 SMALL_AT_ONCE=6 BIG_AT_ONCE=6
    PICTURES=3 STEPS=3 COUNTS=(3 4)
    SEARCH=(--candidates 12 --images 8) KNOWN=(--images 2 --steps 3 --restarts 2) TABLE8=(--images 1 --steps 2)
    CELLS=(mobilenet)
fi

stage() { # NAME FILE COMMAND...: the command writes FILE, or FILE.part, which is FILE once it is whole
    local name=$1 file=$2 begin=$SECONDS rc=0
    shift 2
    [[ -n $ONLY && " $ONLY " != *" $name "* ]] && return
    [ -e "$file" ] && { echo "$name: there"; return; }
    timeout "$LIMIT" "$@" > "$OUT/log/$name.txt" 2>&1 || rc=$?
    [ $rc -eq 0 ] && [ -e "$file.part" ] && mv "$file.part" "$file"
    echo "{\"stage\": \"$name\", \"seconds\": $((SECONDS - begin)), \"ended with\": $rc}" | tee -a "$OUT/stages.jsonl"
    [ $rc -eq 0 ] || tail -n 4 "$OUT/log/$name.txt"
}
lines() { # NAME FILE COMMAND...: of a script that adds lines and cannot go on in the middle
    [ -e "$2.part" ] && cat "$2.part" >> "$2.ended" && rm "$2.part"
    stage "$@"
}
trained() { # FOLDER MODEL RATE EPOCHS KIND...: of the pictures in DATASET
    local folder=$1 model=$2 rate=$3 epochs=$4 kind
    shift 4
    for kind in "$@"; do
        local weights=$folder/$kind-$model.safetensors name=$(basename "$folder")-$kind-$model
        [ -e "$weights" ] && { echo "$name: there"; continue; }
        stage "$name" "$weights" $PY $HERE/models.py "${DATASET[@]}" --out "$folder" --device "$DEVICE" \
            --rate "$rate" --epochs "$epochs" "$kind:$model"
        [ -e "$OUT/log/$name.txt" ] && grep -h '^{' "$OUT/log/$name.txt" >> "$OUT/models.jsonl"
    done
}
figure5() { # MODEL STEPS AT_ONCE: goes on by itself
    stage "correlation-$1" "$OUT/correlation-$1.json" $PY $HERE/correlation.py --root "$DATA" --model "$1" \
        --semi "$MODELS/semi-$1.safetensors" --weights "$MODELS/stage-100-$1.safetensors" "$MODELS/plain-$1.safetensors" \
        --out "$OUT/correlation-$1.json.part" "${FIGURE5[@]}" --steps "$2" --together "$3" "${ON[@]}"
}

DATASET=(--root "$DATA")
trained "$MODELS" lenet5 0.02 $SMALL_EPOCHS semi stages plain
figure5 lenet5 $SMALL_STEPS $SMALL_AT_ONCE

SWEEP=($PY $HERE/sweeps.py --root "$DATA" --model lenet5 --checkpoints "$MODELS" --images $PICTURES --steps $STEPS)
for count in "${COUNTS[@]}"; do
    lines "steps-$count" "$OUT/steps-$count.jsonl" "${SWEEP[@]}" --out "$OUT/steps-$count.jsonl.part" --counts "$count" "${ON[@]}" steps
done
lines sweeps "$OUT/sweeps.jsonl" "${SWEEP[@]}" --out "$OUT/sweeps.jsonl.part" --control-stages 100 "${ON[@]}" stages batches stacked black control

lines table8 "$OUT/table8.jsonl" $PY $HERE/table8.py --root "$DATA" --out "$OUT/table8.jsonl.part" "${TABLE8[@]}" "${ON[@]}" "${CELLS[@]}"

trained "$MODELS" $BIG 0.1 $BIG_EPOCHS semi stages plain
stage search "$OUT/search-race-adaptive.json" $PY $HERE/search_speed.py --root "$DATA" --model $BIG \
    --weights "$MODELS/semi-$BIG.safetensors" --out "$OUT" --scratch "$OUT/search" "${SEARCH[@]}" "${ON[@]}" race:adaptive
if [ -e "$OUT/search-race-adaptive.json" ]; then
    read -r hybrid single <<< "$($PY -c 'import json, sys; told = json.load(open(sys.argv[1])); print(told["hybrid"], told["top"][0])' \
        "$OUT/search-race-adaptive.json")"
    lines known "$OUT/known-adaptive.jsonl" $PY $HERE/known_policies.py --root "$DATA" --model $BIG "${KNOWN[@]}" "${ON[@]}" \
        --weights "$MODELS/stage-100-$BIG.safetensors" --out "$OUT/known-adaptive.jsonl.part" \
        --attackers unaware-smooth black exact -- none "$hybrid" "$single"
fi

if [ -n "$FASHION" ]; then
    DATASET=(--root "$FASHION" --data fashion-mnist)
    trained "$MODELS/fashion" lenet5 0.02 $FASHION_EPOCHS stages 13-43-18 21-3-16 13-43-18+21-3-16 3-1-7+43-18-18
    lines transfer "$OUT/transfer.jsonl" $PY $HERE/sweeps.py "${DATASET[@]}" --model lenet5 --checkpoints "$MODELS/fashion" \
        --out "$OUT/transfer.jsonl.part" --images $PICTURES --steps $STEPS "${ON[@]}" transfer
fi
figure5 $BIG $BIG_STEPS $BIG_AT_ONCE # last: the longest
